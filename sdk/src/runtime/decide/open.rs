//! What `open` does with what it finds, once the epochs are raised: three questions in this order, then a plan.
//!
//! 1. [`check_restore`]: may the job go on from the checkpoint it restores?
//! 2. [`check_sink`]: does the sink hold what nobody who decides knows about?
//! 3. [`plan`]: what is committed, aborted, and left alone.

use std::collections::{BTreeMap, BTreeSet};

use ratified_protocol::{CheckpointId, ClientName, Outcome, TxnId, TxnState};

use crate::runtime::{
    error::RuntimeError,
    policy::{Lost, LostPolicy, UnnamedPolicy},
};

/// A transaction, ordered as commits are: by id, whoever's it is.
pub type Key = (TxnId, ClientName);

/// Whether other workers may hold snapshots of what this one finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// This worker holds all there are.
    Whole,
    /// There are others.
    Part,
}

/// How the job wants to go on, and what it has decided about what may be in its way.
#[derive(Debug, Clone)]
pub enum Rules {
    /// An engine restores a checkpoint.
    Engine {
        /// Which; `None`: it starts from nothing.
        restored: Option<CheckpointId>,
        /// What the restored snapshots name.
        named: BTreeSet<Key>,
        /// Whether there are other workers.
        share: Share,
        /// What becomes of a transaction of the restored checkpoint that no snapshot names.
        unnamed: UnnamedPolicy,
        /// The engine's run.
        run: Option<String>,
        /// Whether an older checkpoint than the last committed may be restored.
        accept_rewind: bool,
    },
    /// The job goes on behind its last commit; nothing else lists what is prepared.
    LastCommit,
}

impl Rules {
    fn names(&self, key: &Key) -> bool {
        matches!(self, Self::Engine { named, .. } if named.contains(key))
    }

    fn named_of(&self, client: &ClientName) -> Option<TxnId> {
        match self {
            Self::Engine { named, .. } => named.iter().filter(|(_, c)| c == client).map(|(id, _)| *id).max(),
            Self::LastCommit => None,
        }
    }
}

/// A client of the sink, whoever owns it.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its name.
    pub client: ClientName,
    /// Its last commit.
    pub last_committed: Option<TxnId>,
    /// The checkpoint of its last commit; the inner `None`: committed without one.
    pub committed: Option<Option<CheckpointId>>,
}

/// A PREPARED transaction of any client of the sink.
#[derive(Debug, Clone)]
pub struct Labelled {
    /// Whose.
    pub client: ClientName,
    /// The run it was begun in, if it says so.
    pub run: Option<String>,
}

/// A client that this worker has just taken over.
#[derive(Debug, Clone)]
pub struct OwnedClient {
    /// Its name.
    pub client: ClientName,
    /// What the coordinator holds unfinished, ascending.
    pub unfinished: Vec<(TxnId, TxnState, Option<CheckpointId>)>,
    /// The newest id that the coordinator has ever met, evicted ones included.
    pub newest: Option<TxnId>,
    /// What the sink shows; `None`: it cannot tell.
    pub visible: Option<Vec<TxnId>>,
    /// What the sink holds staged.
    pub staged: Vec<TxnId>,
}

/// All that `open` has found.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Every client of the sink.
    pub clients: Vec<Found>,
    /// Everything PREPARED in them; looked for only where nothing is restored.
    pub prepared: Vec<Labelled>,
    /// What this worker owns, its own client first.
    pub owned: Vec<OwnedClient>,
}

/// What `open` does, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Have it decided for commit, then as [`Self::Apply`].
    Commit(Key),
    /// It is decided: make it visible, acknowledge.
    Apply(Key),
    /// It is decided for abort: remove what is staged, acknowledge.
    Remove(Key),
    /// Have it decided for abort, then as [`Self::Remove`]. If it turns out to be committed, everything is looked at again.
    Abort(Key),
    /// Not ours to end: whoever restored its snapshot commits it.
    LeaveAlone(Key),
}

/// Refuses to restore a state that the sink is ahead of, before anything prepared is ended because of it.
///
/// # Errors
/// [`RuntimeError::Rewound`], naming the first client that is further.
pub fn check_restore(rules: &Rules, findings: &Findings) -> Result<(), RuntimeError> {
    let Rules::Engine { restored, run, accept_rewind: false, .. } = rules else { return Ok(()) };
    let refuse = |client: &ClientName, committed| {
        Err(RuntimeError::Rewound { restored: *restored, client: client.clone(), committed })
    };
    for Found { client, committed, .. } in &findings.clients {
        match (restored, committed) {
            (Some(restored), Some(Some(committed))) if committed > restored => {
                return refuse(client, Some(*committed));
            }
            (None, Some(committed)) => return refuse(client, *committed),
            _ => {}
        }
    }
    // Before its first completed checkpoint a job starts from nothing again and meets what it has prepared itself.
    let is_foreign = |one: &&Labelled| run.is_none() || one.run != *run;
    match findings.prepared.iter().find(is_foreign) {
        Some(foreign) if restored.is_none() => refuse(&foreign.client, None),
        _ => Ok(()),
    }
}

/// Refuses to go on where the sink holds what the coordinator, the restored state, or both have forgotten: it would be
/// written twice. `is_first_start`: nothing can be staged either.
///
/// # Errors
/// [`RuntimeError::SinkAhead`], naming what was found.
pub fn check_sink(rules: &Rules, findings: &Findings, is_first_start: bool) -> Result<(), RuntimeError> {
    for one in &findings.owned {
        let known = one.newest.max(rules.named_of(&one.client));
        let ends_aborted: BTreeSet<_> = one
            .unfinished
            .iter()
            .filter(|(id, state, checkpoint)| match state {
                TxnState::Prepared => fate(rules, &(*id, one.client.clone()), *checkpoint) == Fate::Abort,
                state => state.outcome() == Some(Outcome::Aborted),
            })
            .map(|(id, ..)| *id)
            .collect();
        let is_ahead = |id: &TxnId| Some(*id) > known || ends_aborted.contains(id);
        let visible: Vec<_> = one.visible.iter().flatten().copied().filter(is_ahead).collect();
        let staged = if is_first_start && known.is_none() { one.staged.clone() } else { Vec::new() };
        if !visible.is_empty() || !staged.is_empty() {
            let (client, place, this) = (one.client.clone(), String::new(), String::new());
            return Err(RuntimeError::SinkAhead { client, place, this, visible, staged });
        }
    }
    Ok(())
}

/// What is done: commits ascending over all clients, then, client by client, what is decided for abort, and what is
/// prepared newest first, so that nothing older has ended if an abort turns out to be too late.
///
/// # Errors
/// [`RuntimeError::Unnamed`], if the policy wants it and no other worker can have a snapshot.
pub fn plan(rules: &Rules, findings: &Findings) -> Result<Vec<Command>, RuntimeError> {
    let mut commits = BTreeMap::new();
    let mut rest = Vec::new();
    let mut unnamed = Vec::new();
    for one in &findings.owned {
        let mut prepared = Vec::new();
        for (id, state, checkpoint) in &one.unfinished {
            let key = (*id, one.client.clone());
            match state {
                TxnState::Committing => drop(commits.insert(key.clone(), Command::Apply(key))),
                TxnState::Aborting => rest.push(Command::Remove(key)),
                TxnState::Prepared => match fate(rules, &key, *checkpoint) {
                    Fate::Commit => drop(commits.insert(key.clone(), Command::Commit(key))),
                    Fate::Abort => prepared.push(Command::Abort(key)),
                    Fate::LeaveAlone => prepared.push(Command::LeaveAlone(key)),
                    Fate::Fail => unnamed.push((one.client.clone(), *id)),
                },
                _ => {}
            }
        }
        rest.extend(prepared.into_iter().rev());
    }
    if let Rules::Engine { restored, named, .. } = rules {
        if !unnamed.is_empty() {
            return Err(RuntimeError::Unnamed { restored: *restored, txns: unnamed });
        }
        // Also those of other workers' clients, and those that are not unfinished any more: each is asked for.
        commits.extend(named.iter().map(|key| (key.clone(), Command::Commit(key.clone()))));
    }
    Ok(commits.into_values().chain(rest).collect())
}

#[derive(PartialEq, Eq)]
enum Fate {
    Commit,
    Abort,
    LeaveAlone,
    Fail,
}

/// What is to become of a PREPARED transaction.
fn fate(rules: &Rules, key: &Key, checkpoint: Option<CheckpointId>) -> Fate {
    let Rules::Engine { restored: Some(restored), share, unnamed, .. } = rules else { return Fate::Abort };
    if rules.names(key) {
        return Fate::Commit;
    }
    if checkpoint.is_some_and(|own| own > *restored) {
        return Fate::Abort;
    }
    match (unnamed, share) {
        // Who has its snapshot may be opening right now.
        (_, Share::Part) | (UnnamedPolicy::LeaveAlone, _) => Fate::LeaveAlone,
        (UnnamedPolicy::Fail, Share::Whole) => Fate::Fail,
        (UnnamedPolicy::Commit, Share::Whole) => Fate::Commit,
    }
}

/// Whether the job goes on without a transaction that had to be committed and is lost. `last_committed`: of its client.
pub fn is_given_up(rules: &Rules, policy: LostPolicy, lost: Lost, id: TxnId, last_committed: Option<TxnId>) -> bool {
    let is_overtaken = last_committed.is_some_and(|last| id < last);
    let accepts_rewind = matches!(rules, Rules::Engine { accept_rewind: true, .. });
    policy == LostPolicy::Skip || (accepts_rewind && lost == Lost::Expired && is_overtaken)
}

#[cfg(test)]
mod tests;
