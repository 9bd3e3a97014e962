//! Wire types of Ratified, protocol v1: identifiers, states, requests, answers and problem codes.
//!
//! Pure: no clock, no randomness, no disk, no network. The coordinator and the SDK share these types, so that neither
//! can say what the other does not understand. JSON is lowerCamelCase; `null` and an absent member mean the same.

mod answer;
mod batch;
mod decode;
mod ids;
mod known;
mod problem;
mod request;
mod state;
mod store;
mod strict;
mod told;
mod value;

pub use answer::{
    BatchAnswer, BatchResult, ClientItem, Decision, DecisionsAnswer, LastCommitted, List, ManyAnswer, OpenAnswer,
    ParticipantAnswer, ParticipantState, PreservedOutcome, PreserverAnswer, Txn, VersionAnswer,
};
pub use batch::{BatchItem, BatchOp, BatchRequest, MAX_BATCH_BYTES, MAX_BATCH_OPERATIONS, ManyItem, ManyRequest};
pub use decode::{MAX_BODY_BYTES, RequestBody, decode_body};
pub use ids::{
    CheckpointId, ClientName, Epoch, Generation, IdError, Incarnation, MAX_NAME_CHARS, ParticipantName, TxnId,
};
pub use known::{KNOWN_HEADER, KnownStore, LOAD_HEADER, LoadNonce, STORE_HEADER};
pub use problem::{Code, PROBLEM_MEDIA_TYPE, Problem};
pub use request::{
    AbortRequest, AckRequest, BeginRequest, CommitRequest, EmptyRequest, EpochRequest, ForgetRequest, OpenRequest,
    PrepareRequest, ReinstateRequest, Resolution, ResolveRequest, RetireRequest,
};
pub use state::{EndReason, Outcome, TxnState};
pub use store::{Loads, MAX_PARTITIONS, StoreId};
pub use told::{Told, Word};
pub use value::{
    Labels, MAX_ANSWER_PAYLOAD_BYTES, MAX_LABEL_BYTES, MAX_LABELS, MAX_PARTICIPANTS, MAX_PAYLOAD_BYTES, MAX_TEXT_BYTES,
    MAX_TIMEOUT_MS, MAX_WAIT_MS, ParticipantSet, Payload, ShortText, TimeoutMs, ValueError, WallTime,
};
