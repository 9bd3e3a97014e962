//! What was asked, what was answered, and what may therefore be seen from now on.
//!
//! A call is acknowledged, refused or unknown, and the three are kept apart: an acknowledged one must be seen for
//! ever, a refused one must never take effect, and an unknown one may have either fate, but only one.

mod client;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use client::Client;
pub use client::{Opened, Opening};

/// A decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Visible.
    Committed,
    /// Removed.
    Aborted,
}

/// Where a transaction was seen to stand. Later ones never turn back into earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    /// It never began.
    Absent,
    /// OPEN.
    Open,
    /// PREPARED.
    Prepared,
    /// COMMITTING, ABORTING.
    Ending(Outcome),
    /// COMMITTED, ABORTED.
    Ended(Outcome),
    /// No longer known.
    Expired,
}

impl Seen {
    /// From a state's name on the wire.
    pub fn from_state(state: &str) -> Option<Self> {
        Some(match state {
            "OPEN" => Self::Open,
            "PREPARED" => Self::Prepared,
            "COMMITTING" => Self::Ending(Outcome::Committed),
            "ABORTING" => Self::Ending(Outcome::Aborted),
            "COMMITTED" => Self::Ended(Outcome::Committed),
            "ABORTED" => Self::Ended(Outcome::Aborted),
            _ => return None,
        })
    }

    /// The decision, if there is one.
    pub const fn outcome(self) -> Option<Outcome> {
        match self {
            Self::Ending(outcome) | Self::Ended(outcome) => Some(outcome),
            _ => None,
        }
    }

    const fn rank(self) -> u8 {
        match self {
            Self::Absent => 0,
            Self::Open => 1,
            Self::Prepared => 2,
            Self::Ending(_) => 3,
            Self::Ended(_) => 4,
            Self::Expired => 5,
        }
    }
}

/// A call that may change a transaction, or only looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// `begin`
    Begin,
    /// `prepare`
    Prepare,
    /// `commit`
    Commit,
    /// `abort`
    Abort,
    /// `ack` of this outcome by the transaction's participant
    Ack(Outcome),
    /// `GET`, a list, anything that changes nothing
    Look,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// A 2xx that told this.
    Done(Seen),
    /// A definite refusal that told this: nothing was changed by the call.
    Refused(Seen),
    /// The caller's epoch is not the current one: nothing was changed.
    Fenced,
    /// No answer, or one that leaves it open.
    Unknown,
}

/// A rule was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation(String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A call on its way: what was certain when it was sent.
#[derive(Debug, Clone)]
pub struct Call {
    client: String,
    txn: u64,
    asked: Asked,
    floor: Seen,
}

/// What is known about a transaction.
#[derive(Debug, Clone)]
struct Txn {
    /// The farthest it was seen to have come.
    floor: Seen,
    /// Whether anybody was told that it is, or was, there.
    exists: bool,
    /// The decision, once anybody was told one.
    outcome: Option<Outcome>,
    /// Calls that took effect or still may, by kind.
    possible: BTreeMap<Asked, u64>,
    /// It is possible that a newer `open` aborted it.
    fenceable: bool,
    /// The logical time before which it cannot have ended.
    not_ended_before: Option<u64>,
    /// The logical time at which it was known to have ended.
    ended_by: Option<u64>,
}

impl Txn {
    fn may_be(&self, outcome: Outcome) -> bool {
        let asked = match outcome {
            Outcome::Committed => Asked::Commit,
            Outcome::Aborted => Asked::Abort,
        };
        match self.outcome {
            Some(decided) => decided == outcome,
            None => self.is_possible(asked) || (outcome == Outcome::Aborted && self.fenceable),
        }
    }

    fn is_possible(&self, asked: Asked) -> bool {
        self.possible.get(&asked).is_some_and(|n| *n > 0)
    }
}

/// What was counted; a run that never met one of these has shown little.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls with a 2xx.
    pub acknowledged: u64,
    /// Calls refused.
    pub refused: u64,
    /// Calls without an answer.
    pub unknown: u64,
    /// Answers that an outcome is no longer kept.
    pub expired: u64,
    /// Calls refused because of their epoch.
    pub fenced: u64,
}

/// The oracle.
#[derive(Debug, Clone, Default)]
pub struct Oracle {
    clients: BTreeMap<String, Client>,
    clock: u64,
    /// How many outcomes of each kind the preserver must keep; `None` = nothing may ever be evicted.
    keep: Option<usize>,
    counts: Counts,
}

impl Oracle {
    /// An oracle of a coordinator that keeps so many outcomes per client and outcome; `None` = all.
    pub fn new(keep: Option<usize>) -> Self {
        Self { keep, ..Self::default() }
    }

    /// What was counted so far.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// A call is about to be sent.
    pub fn ask(&mut self, client: &str, txn: u64, asked: Asked) -> Call {
        self.clock += 1;
        let now = self.clock;
        let known = self.client(client).ask(txn);
        *known.possible.entry(asked).or_default() += 1;
        if matches!(asked, Asked::Commit | Asked::Abort) {
            known.not_ended_before.get_or_insert(now);
        }
        Call { client: client.to_owned(), txn, asked, floor: known.floor }
    }

    /// A call was answered, or given up.
    ///
    /// # Errors
    /// The answer breaks a rule.
    pub fn answer(&mut self, call: &Call, answered: Answered) -> Result<(), Violation> {
        self.clock += 1;
        let at = |what: &str| Violation(format!("{call:?} was answered {answered:?}: {what}"));
        let seen = match answered {
            Answered::Unknown => {
                self.counts.unknown += 1;
                return Ok(());
            }
            Answered::Fenced => {
                self.counts.fenced += 1;
                self.retract(call);
                let contested = self.client(&call.client).is_contested();
                return if contested { Ok(()) } else { Err(at("nobody else has opened the client")) };
            }
            Answered::Refused(seen) => {
                self.counts.refused += 1;
                self.retract(call);
                seen
            }
            Answered::Done(seen) => {
                self.counts.acknowledged += 1;
                if !fits(call.asked, seen) {
                    return Err(at("that is not what success of this call means"));
                }
                seen
            }
        };
        self.see(&call.client, call.txn, call.floor, seen).map_err(|why| at(&why))
    }

    /// A refused call must not take effect any more, whatever is said of it later.
    fn retract(&mut self, call: &Call) {
        let known = self.client(&call.client).txn(call.txn);
        if let Some(count) = known.possible.get_mut(&call.asked) {
            *count = count.saturating_sub(1);
        }
    }

    fn see(&mut self, client: &str, txn: u64, floor: Seen, seen: Seen) -> Result<(), String> {
        if seen.rank() < floor.rank() {
            return Err(format!("it had been seen as {floor:?}"));
        }
        if seen == Seen::Expired {
            self.counts.expired += 1;
            self.check_eviction(client, txn)?;
        }
        let now = self.clock;
        let known = self.client(client).txn(txn);
        match seen {
            Seen::Absent | Seen::Expired => {}
            _ if !known.is_possible(Asked::Begin) => return Err("it never was begun".to_owned()),
            Seen::Prepared if !known.is_possible(Asked::Prepare) => return Err("it never was prepared".to_owned()),
            _ => {}
        }
        known.exists |= !matches!(seen, Seen::Absent | Seen::Expired);
        if let Some(outcome) = seen.outcome() {
            if !known.may_be(outcome) {
                return Err(format!("its outcome is {:?}, and who could have decided so?", known.outcome));
            }
            known.outcome = Some(outcome);
        }
        if seen.rank() > known.floor.rank() {
            known.floor = seen;
        }
        if seen.rank() >= 4 {
            known.ended_by.get_or_insert(now);
        }
        Ok(())
    }

    /// Whether the outcome of this transaction may be gone: at least `keep` others of its kind may have ended after it,
    /// and it is not the last commit.
    fn check_eviction(&mut self, client: &str, txn: u64) -> Result<(), String> {
        let Some(keep) = self.keep else { return Err("nothing may be evicted".to_owned()) };
        let known = self.client(client);
        let gone = known.txn(txn).clone();
        let legal = [Outcome::Committed, Outcome::Aborted].into_iter().filter(|o| gone.may_be(*o)).any(|outcome| {
            let later = known.others(txn).filter(|(_, other)| {
                other.may_be(outcome) && other.ended_by.unwrap_or(u64::MAX) > gone.not_ended_before.unwrap_or(0)
            });
            let is_last = outcome == Outcome::Committed
                && !known.others(txn).any(|(id, other)| id > txn && other.may_be(Outcome::Committed));
            !is_last && later.count() >= keep
        });
        // An id that never began may be below the watermark, too.
        if legal || (gone.outcome.is_none() && !gone.exists) {
            return Ok(());
        }
        let others: Vec<_> = known.others(txn).map(|(id, other)| (id, other.outcome, other.ended_by)).collect();
        Err(format!(
            "it must be kept: it is among the newest {keep} of its kind, or the last commit; {gone:?}; the others, with \
             what is known of their outcome and end: {others:?}"
        ))
    }

    fn client(&mut self, name: &str) -> &mut Client {
        self.clients.entry(name.to_owned()).or_default()
    }

    /// All transactions that anything is known about.
    pub fn all(&self) -> BTreeMap<String, BTreeSet<u64>> {
        self.clients.iter().map(|(name, client)| (name.clone(), client.ids())).collect()
    }

    /// Whether this transaction was seen to be gone; it stays so.
    pub fn is_expired(&self, client: &str, txn: u64) -> bool {
        self.clients.get(client).is_some_and(|c| c.floor(txn) == Seen::Expired)
    }
}

/// Whether a call that succeeded may have told this.
fn fits(asked: Asked, seen: Seen) -> bool {
    match asked {
        Asked::Begin | Asked::Look => !matches!(seen, Seen::Absent | Seen::Expired),
        Asked::Prepare => {
            matches!(seen, Seen::Prepared | Seen::Ending(Outcome::Committed) | Seen::Ended(Outcome::Committed))
        }
        Asked::Commit => seen.outcome() == Some(Outcome::Committed),
        Asked::Abort => seen.outcome() == Some(Outcome::Aborted),
        // The transactions of these tests have one participant at most.
        Asked::Ack(outcome) => seen == Seen::Ended(outcome),
    }
}
