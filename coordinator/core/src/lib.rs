//! The transaction state machine of the Ratified coordinator.
//!
//! Pure and deterministic: the same inputs give the same effects. Time is an argument, the disk is a list of effects,
//! and all rules of the protocol are decided here and nowhere else.

mod calls;
mod client;
mod effect;
mod engine;
mod headers;
mod history;
mod invariants;
mod limits;
mod paged;
mod participants;
mod preserver;
mod record;
mod recovery;
mod rewrite;
mod stats;
mod step;
mod sweep;
mod time;
mod transaction;
mod waiting;

pub use effect::{
    Answer, Audit, ClientNames, Effect, Input, Ownership, OwnershipEvent, Page, Request, Revision, Success, Sweep,
    Ticket, Transition, TxnCall, TxnFilter,
};
pub use engine::Engine;
pub use history::LoadHistory;
pub use invariants::check_all;
pub use limits::Limits;
pub use record::{
    ClientRecord, DecisionRecord, Key, LastCommittedRecord, OutcomeRecord, ParticipantEntry, ParticipantRecord, Record,
    TransactionRecord, Write,
};
pub use recovery::{Recovery, RecoveryError};
pub use stats::{Gauges, Stats};
pub use time::{Now, Uptime};
