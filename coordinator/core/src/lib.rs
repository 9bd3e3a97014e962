//! The transaction state machine of the Ratified coordinator.
//!
//! Pure and deterministic: the same inputs give the same effects. Time is an argument, the disk is a list of effects,
//! and all rules of the protocol are decided here and nowhere else.

mod effect;
mod engine;
mod limits;
mod record;
mod stats;

pub use effect::{
    Answer, Audit, Effect, Input, Now, Page, Request, Revision, Success, Sweep, Ticket, Transition, TxnCall, TxnFilter,
    Uptime,
};
pub use engine::{Engine, Recovery, RecoveryError};
pub use limits::Limits;
pub use record::{
    ClientRecord, DecisionRecord, Key, LastCommittedRecord, OutcomeRecord, ParticipantEntry, ParticipantRecord, Record,
    TransactionRecord, Write,
};
pub use stats::{Gauges, Stats};
