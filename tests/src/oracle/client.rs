//! What is known about a client name: its epochs, and what `open` may tell.

use std::collections::{BTreeMap, BTreeSet};

use super::{Asked, Oracle, Outcome, Seen, Txn, Violation};

/// What an `open` told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The epoch.
    pub epoch: u64,
    /// The greatest id ever begun.
    pub newest: Option<u64>,
    /// The last commit.
    pub last_committed: Option<u64>,
}

/// What is known about a client.
#[derive(Debug, Clone, Default)]
pub(super) struct Client {
    txns: BTreeMap<u64, Txn>,
    /// How many different incarnations have sent an `open`.
    incarnations: BTreeSet<u64>,
    /// Those whose `open` was not answered yet: it may fence at any moment.
    opening: BTreeSet<u64>,
    /// Incarnation by epoch, acknowledged.
    epochs: BTreeMap<u64, u64>,
}

impl Client {
    pub(super) fn txn(&mut self, id: u64) -> &mut Txn {
        self.txns.entry(id).or_insert_with(|| Txn {
            floor: Seen::Absent,
            exists: false,
            outcome: None,
            possible: BTreeMap::new(),
            fenceable: false,
            not_ended_before: None,
            ended_by: None,
        })
    }

    /// A call about this transaction is sent.
    pub(super) fn ask(&mut self, id: u64) -> &mut Txn {
        let may_be_fenced = !self.opening.is_empty();
        let txn = self.txn(id);
        txn.fenceable |= may_be_fenced && txn.floor < Seen::Prepared;
        txn
    }

    pub(super) fn others(&self, id: u64) -> impl Iterator<Item = (u64, &Txn)> {
        self.txns.iter().map(|(other, txn)| (*other, txn)).filter(move |(other, _)| *other != id)
    }

    pub(super) fn ids(&self) -> BTreeSet<u64> {
        self.txns.keys().copied().collect()
    }

    pub(super) fn floor(&self, id: u64) -> Seen {
        self.txns.get(&id).map_or(Seen::Absent, |txn| txn.floor)
    }

    /// Whether more than one incarnation ever tried to open it.
    pub(super) fn is_contested(&self) -> bool {
        self.incarnations.len() > 1
    }
}

/// An `open` on its way: what was certain when it was sent.
#[derive(Debug, Clone)]
pub struct Opening {
    client: String,
    incarnation: u64,
    greatest_epoch: Option<u64>,
    greatest_begun: Option<u64>,
    greatest_committed: Option<u64>,
}

impl Oracle {
    /// An `open` is about to be sent. It may abort whatever is OPEN.
    pub fn ask_open(&mut self, name: &str, incarnation: u64) -> Opening {
        self.clock += 1;
        let now = self.clock;
        let client = self.client(name);
        client.incarnations.insert(incarnation);
        client.opening.insert(incarnation);
        // What is PREPARED for certain is never touched by an `open`.
        for txn in client.txns.values_mut().filter(|txn| txn.floor < Seen::Prepared) {
            txn.fenceable = true;
            txn.not_ended_before.get_or_insert(now);
        }
        let greatest = |known: fn(&Txn) -> bool| client.txns.iter().rev().find(|(_, t)| known(t)).map(|(id, _)| *id);
        Opening {
            client: name.to_owned(),
            incarnation,
            greatest_epoch: client.epochs.last_key_value().map(|(epoch, _)| *epoch),
            greatest_begun: greatest(|txn| txn.floor > Seen::Absent),
            greatest_committed: greatest(|txn| txn.outcome == Some(Outcome::Committed)),
        }
    }

    /// An `open` was refused because a newer one has come.
    pub fn superseded(&mut self, opening: &Opening) {
        self.counts.fenced += 1;
        self.client(&opening.client).opening.remove(&opening.incarnation);
    }

    /// An `open` was answered with a 2xx.
    ///
    /// # Errors
    /// The answer breaks a rule.
    pub fn opened(&mut self, opening: &Opening, told: &Opened) -> Result<(), Violation> {
        self.clock += 1;
        self.counts.acknowledged += 1;
        let at = |what: &str| Violation(format!("{opening:?} was answered {told:?}: {what}"));
        let client = self.client(&opening.client);
        client.opening.remove(&opening.incarnation);
        match client.epochs.insert(told.epoch, opening.incarnation) {
            Some(before) if before != opening.incarnation => return Err(at("one epoch, two owners")),
            Some(_) => {}
            None if opening.greatest_epoch.is_some_and(|greatest| told.epoch <= greatest) => {
                return Err(at("an epoch went back"));
            }
            None => {}
        }
        if told.epoch > client.incarnations.len() as u64 {
            return Err(at("more epochs than anybody asked for"));
        }
        if told.newest < opening.greatest_begun {
            return Err(at("a begin that was acknowledged is forgotten"));
        }
        if told.last_committed < opening.greatest_committed {
            return Err(at("a commit that was acknowledged is forgotten"));
        }
        let possible = |id: u64, asked| client.txns.get(&id).is_some_and(|txn| txn.is_possible(asked));
        if told.newest.is_some_and(|id| !possible(id, Asked::Begin)) {
            return Err(at("the newest id never was begun"));
        }
        if let Some(id) = told.last_committed {
            if !client.txn(id).may_be(Outcome::Committed) {
                return Err(at("the last commit never was committed"));
            }
            client.txn(id).outcome = Some(Outcome::Committed);
        }
        Ok(())
    }
}
