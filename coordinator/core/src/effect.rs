//! What goes into the engine and what comes out of it: the whole surface between the core and its shell.

use ratified_protocol::{
    AbortRequest, AckRequest, BatchAnswer, BatchItem, BeginRequest, ClientItem, ClientName, CommitRequest,
    DecisionsAnswer, EndReason, Epoch, EpochRequest, Generation, List, ManyAnswer, ManyItem, OpenAnswer, OpenRequest,
    ParticipantAnswer, ParticipantName, PrepareRequest, PreservedOutcome, PreserverAnswer, Problem, ResolveRequest,
    ShortText, Txn, TxnId, TxnState,
};

use crate::record::Write;

/// Names a request to the shell; the engine gives it back with the one reply it makes to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Counts the steps that changed something durable. A reply that carries a revision must not leave before the batch
/// holding that revision is synced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// Something that happens to the engine. Sweeps and operator calls take the same way as a client's request.
#[derive(Debug, Clone)]
pub enum Input {
    /// Somebody asks.
    Request {
        /// Who is to be answered.
        ticket: Ticket,
        /// What is asked.
        request: Request,
    },
    /// It is time to look for what is due. Bounded per step: see [`Effect::SweepAgain`].
    Sweep(Sweep),
}

/// The periodic sweeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sweep {
    /// Aborts what is past its deadline, and answers those who have waited long enough.
    Timeouts,
    /// Drops outcomes older than `transaction_meta_persist_time_in_hour`.
    Expiry,
    /// Drops outcomes beyond N that are older than `gc_retention_seconds`.
    Gc,
    /// Shrinks clients idle for `client_retention_hours` to a tombstone.
    IdleClients,
    /// Goes on with calls that take several steps.
    Calls,
    /// Puts everything again, a page per step, for a store that is a log. A step that stops at its bound is to go on in a
    /// later batch; one that does not ends the round.
    Rewrite,
}

impl Sweep {
    /// Those that follow the clock; rewriting follows what is written.
    pub const ALL: [Self; 5] = [Self::Timeouts, Self::Expiry, Self::Gc, Self::IdleClients, Self::Calls];
}

/// A call of the protocol, its body already read.
#[derive(Debug, Clone)]
pub enum Request {
    /// `POST /v1/clients/{c}/open`
    Open {
        /// Whose.
        client: ClientName,
        /// The body.
        body: OpenRequest,
    },
    /// A call about one transaction.
    Txn {
        /// Whose.
        client: ClientName,
        /// Which one.
        txn_id: TxnId,
        /// What to do with it.
        call: TxnCall,
        /// How long commit, abort and get wait for a terminal state, in milliseconds; 0 elsewhere.
        wait_ms: u64,
    },
    /// `POST /v1/clients/{c}/batch`
    Batch {
        /// Whose.
        client: ClientName,
        /// The operations; a malformed one is refused at its turn.
        items: Vec<Result<BatchItem, Problem>>,
        /// Whether to stop at the first item that is not a 2xx.
        ordered: bool,
    },
    /// `POST /v1/batch`
    Many {
        /// The operations; a malformed one is refused at its turn.
        items: Vec<Result<ManyItem, Problem>>,
    },
    /// `GET /v1/participants/{p}/decisions`
    Decisions {
        /// Who asks.
        participant: ParticipantName,
        /// The cursor of an earlier answer.
        after: Option<String>,
        /// How long to wait for something to apply, in milliseconds.
        wait_ms: u64,
    },
    /// `POST /v1/participants/{p}/retire`
    Retire {
        /// Who is gone.
        participant: ParticipantName,
        /// Why.
        reason: ShortText,
    },
    /// `POST /v1/participants/{p}/reinstate`
    Reinstate {
        /// Who is back.
        participant: ParticipantName,
        /// Why.
        reason: Option<ShortText>,
    },
    /// `GET /v1/preserver/{c}`
    Preserver {
        /// Whose.
        client: ClientName,
    },
    /// `GET /v1/preserver/{c}/{id}`
    PreserverLookup {
        /// Whose.
        client: ClientName,
        /// Which one.
        txn_id: TxnId,
    },
    /// `GET /v1/clients`
    Clients {
        /// Which ones.
        names: ClientNames,
        /// Which page.
        page: Page,
    },
    /// `GET /v1/txns`
    Txns {
        /// Which ones.
        filter: TxnFilter,
        /// Which page.
        page: Page,
    },
    /// `POST /v1/clients/{c}/forget`
    Forget {
        /// Whose.
        client: ClientName,
        /// Why.
        reason: ShortText,
    },
}

/// A call about one transaction.
#[derive(Debug, Clone)]
pub enum TxnCall {
    /// `PUT /v1/clients/{c}/txns/{id}`
    Begin(BeginRequest),
    /// `POST .../prepare`
    Prepare(PrepareRequest),
    /// `POST .../commit`
    Commit(CommitRequest),
    /// `POST .../abort`
    Abort(AbortRequest),
    /// `POST .../keep-alive`
    KeepAlive(EpochRequest),
    /// `GET .../txns/{id}`
    Get,
    /// `PUT .../participants/{p}`
    Register(ParticipantName, EpochRequest),
    /// `POST .../participants/{p}/ack`
    Ack(ParticipantName, AckRequest),
    /// `POST .../resolve`
    Resolve(ResolveRequest),
}

/// A page of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// At most this many items; `None` = 50; coerced to 1..=1000.
    pub size: Option<u64>,
    /// The `nextPageToken` of the page before.
    pub token: Option<String>,
}

/// Which transactions to list; every given member must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TxnFilter {
    /// In this state; COMMITTED and ABORTED ask the preserver, everything else the live headers.
    pub state: Option<TxnState>,
    /// Of this client.
    pub client: Option<ClientName>,
    /// Of clients whose name starts so.
    pub client_prefix: Option<String>,
    /// Begun (live) or ended (preserved) at least this many milliseconds ago.
    pub older_than_ms: Option<u64>,
}

/// Something the shell has to do. Effects of one step are carried out in order; none before the step's batch is synced
/// except replies whose revision already is.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Part of the batch.
    Persist(Write),
    /// Answer a request, once everything up to `after` is synced.
    Reply {
        /// Who is answered.
        ticket: Ticket,
        /// The newest unsynced step the answer may depend on.
        after: Revision,
        /// The answer.
        answer: Answer,
    },
    /// A transaction changed its state: one line in the log (PIP-31).
    Transition(Transition),
    /// A client has a new owner, or an old one was refused: one line in the log, once everything up to `after` is
    /// synced.
    Ownership {
        /// The newest unsynced step it may depend on.
        after: Revision,
        /// What happened.
        ownership: Ownership,
    },
    /// An operator's call took effect: one line in the log.
    Audit(Audit),
    /// A sweep stopped at its bound; run it again in a later step.
    SweepAgain(Sweep),
}

/// A change of a transaction's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// Whose.
    pub client: ClientName,
    /// Which one.
    pub txn_id: TxnId,
    /// `None` = it was begun.
    pub from: Option<TxnState>,
    /// The new state.
    pub to: TxnState,
    /// Who or what decided; `None` before a decision.
    pub reason: Option<EndReason>,
}

/// Who holds a client, and who does not any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ownership {
    /// Which client.
    pub client: ClientName,
    /// The current epoch.
    pub epoch: Epoch,
    /// Who holds it.
    pub owner: Option<ShortText>,
    /// Who held the epoch before.
    pub previous_owner: Option<ShortText>,
    /// What happened.
    pub event: OwnershipEvent,
}

/// What happened to the ownership of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnershipEvent {
    /// `open` raised the epoch.
    Opened {
        /// The generation it was given.
        generation: Option<Generation>,
    },
    /// A call with a superseded epoch was refused.
    CallFenced {
        /// The epoch it carried.
        given: Epoch,
    },
    /// An `open` was refused: its incarnation was superseded, or its generation is smaller than the greatest seen.
    OpenFenced {
        /// Who asked.
        by: Option<ShortText>,
        /// The generation it carried.
        generation: Option<Generation>,
    },
}

/// An operator's call that took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audit {
    /// A transaction was resolved.
    Resolved {
        /// Whose.
        client: ClientName,
        /// Which one.
        txn_id: TxnId,
        /// The body of the call.
        request: ResolveRequest,
    },
    /// A participant was retired.
    Retired {
        /// Who.
        participant: ParticipantName,
        /// Why.
        reason: ShortText,
        /// How many unfinished transactions it was dropped from.
        transactions: u64,
    },
    /// A participant was reinstated.
    Reinstated {
        /// Who.
        participant: ParticipantName,
        /// Why.
        reason: Option<ShortText>,
    },
    /// A client was forgotten.
    Forgotten {
        /// Who.
        client: ClientName,
        /// Why.
        reason: ShortText,
        /// How many outcomes were dropped.
        outcomes: u64,
    },
}

/// How a transaction answer succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Success {
    /// 200
    Ok,
    /// 201
    Created,
    /// 202: decided and durable, acknowledgements are missing.
    Accepted,
}

impl Success {
    /// The HTTP status.
    pub const fn status(self) -> u16 {
        match self {
            Self::Ok => 200,
            Self::Created => 201,
            Self::Accepted => 202,
        }
    }
}

/// Which clients a listing shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ClientNames {
    /// Every one.
    #[default]
    All,
    /// Those whose names start so.
    From(String),
    /// Those of this sink: `<name>.<digits>`.
    Of(ClientName),
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A transaction.
    Txn(Success, Box<Txn>),
    /// `open`
    Open(Box<OpenAnswer>),
    /// `batch`
    Batch(BatchAnswer),
    /// `batch` over many clients
    Many(ManyAnswer),
    /// `decisions`
    Decisions(DecisionsAnswer),
    /// `retire`, `reinstate`
    Participant(ParticipantAnswer),
    /// The preserver's list.
    Preserver(Box<PreserverAnswer>),
    /// The preserver's lookup.
    Preserved(PreservedOutcome),
    /// Clients.
    Clients(List<ClientItem>),
    /// Transactions.
    Txns(List<Txn>),
    /// `forget`
    Client(Box<ClientItem>),
    /// A refusal.
    Problem(Box<Problem>),
}
