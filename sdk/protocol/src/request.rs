//! Bodies of requests. Unknown members are refused; `null` is the same as absent.

use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    ids::{CheckpointId, Epoch, Generation, Incarnation},
    problem::{Code, Problem},
    state::Outcome,
    value::{Labels, MAX_PAYLOAD_BYTES, ParticipantSet, Payload, ShortText, TimeoutMs},
};

fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// `open`: raise the epoch and learn what is unfinished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OpenRequest {
    /// Drawn anew for every `open` of a runtime; reused only to retry that one call.
    pub incarnation: Incarnation,
    /// Who asks: host, process, free text. Told to whoever is fenced by this call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<ShortText>,
    /// Whether an unknown or forgotten name is made rather than refused.
    #[serde(default, deserialize_with = "null_as_default")]
    pub create: bool,
    /// The engine's own fencing number. A smaller one than the greatest that this client was opened with is refused
    /// with [`crate::Code::Fenced`]: a late `open` of an overtaken attempt cannot overtake back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
}

impl OpenRequest {
    /// An `open` that makes no client and says neither owner nor generation.
    pub const fn new(incarnation: Incarnation) -> Self {
        Self { incarnation, owner: None, create: false, generation: None }
    }
}

/// `begin`: idempotent by the transaction id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BeginRequest {
    /// The client's current epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// How long the transaction may stay OPEN without a keep-alive; 60000 when absent.
    #[serde(default, deserialize_with = "null_as_default")]
    pub timeout_ms: TimeoutMs,
    /// Whether commit of the OPEN transaction is refused (engine mode).
    #[serde(default, deserialize_with = "null_as_default")]
    pub require_prepare: bool,
    /// Who must acknowledge the outcome.
    #[serde(default, deserialize_with = "null_as_default")]
    pub participants: ParticipantSet,
    /// For people and listings.
    #[serde(default, deserialize_with = "null_as_default")]
    pub labels: Labels,
}

/// `prepare`: the staged data survives a crash from here on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PrepareRequest {
    /// The client's current epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// The checkpoint that lists the transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<CheckpointId>,
    /// What another process needs to finish the transaction; at most 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
    /// When set, the PREPARED transaction is aborted after this long; by default it is held (PIP-31).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepared_timeout_ms: Option<TimeoutMs>,
}

/// `commit`: decide for commit, or be told what was decided.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommitRequest {
    /// Needed to decide an OPEN transaction; if given for a PREPARED one it must be current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// From OPEN: the checkpoint. From PREPARED: absent or equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<CheckpointId>,
    /// From OPEN: handle and position. From PREPARED: absent or equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
}

/// `abort`: decide for abort, or be told what was decided.
pub type AbortRequest = EpochRequest;

/// A body that carries the epoch and nothing else: abort, keep-alive, participant registration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EpochRequest {
    /// The client's current epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
}

/// `ack`: a participant has applied the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AckRequest {
    /// The outcome that was applied.
    pub outcome: Outcome,
}

/// What an operator decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Resolution {
    /// Commit a PREPARED transaction.
    Commit,
    /// Abort an OPEN or PREPARED transaction.
    Abort,
}

impl Resolution {
    /// The outcome asked for.
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::Commit => Outcome::Committed,
            Self::Abort => Outcome::Aborted,
        }
    }
}

/// `resolve`: an operator's decision; needs no epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResolveRequest {
    /// What to decide.
    pub outcome: Resolution,
    /// Why; goes to the log.
    pub reason: ShortText,
    /// Who; goes to the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<ShortText>,
}

/// `forget`: drop what is kept about a client, for ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForgetRequest {
    /// Why; goes to the log.
    pub reason: ShortText,
}

/// `retire`: declare a vanished participant gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetireRequest {
    /// Why; recorded and logged.
    pub reason: ShortText,
}

/// `reinstate`: take a retired participant back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReinstateRequest {
    /// Why; logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ShortText>,
}

/// A body without members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmptyRequest {}

/// Refuses a payload over [`MAX_PAYLOAD_BYTES`].
pub(crate) fn check_payload(payload: Option<&Payload>) -> Result<(), Problem> {
    match payload {
        Some(payload) if payload.len() > MAX_PAYLOAD_BYTES => {
            let detail = format!(
                "payload: {} bytes, at most {MAX_PAYLOAD_BYTES} are taken; keep the data beside and send a reference",
                payload.len()
            );
            Err(Problem::new(Code::TooLarge, detail))
        }
        _ => Ok(()),
    }
}
