//! The oracle: what callers were told, and what therefore must hold for ever.

use std::collections::BTreeMap;

use ratified_core::Ticket;
use ratified_protocol::{ClientName, Outcome, TxnState};
use serde_json::Value;

use super::snapshot::{Snapshot, TxnKey};
use crate::support::{Told, id, told::number};

/// Who asked, so that an answer can be understood.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) client: Option<ClientName>,
    pub(super) key: Option<TxnKey>,
    pub(super) incarnation: Option<u128>,
    pub(super) is_begin: bool,
}

/// What was told about one transaction.
#[derive(Debug, Clone, Default)]
struct Facts {
    seen: bool,
    prepared: bool,
    outcome: Option<(Outcome, Option<String>)>,
    terminal: bool,
    expired: bool,
}

/// Everything that was told since the beginning, crashes or not.
#[derive(Debug, Clone, Default)]
pub(super) struct Oracle {
    facts: BTreeMap<TxnKey, Facts>,
    /// Who was given which epoch.
    epochs: BTreeMap<(ClientName, u64), u128>,
    /// What was decided on disk.
    durable: BTreeMap<TxnKey, Outcome>,
    durable_epochs: BTreeMap<ClientName, u64>,
    asked: BTreeMap<Ticket, Asked>,
}

impl Oracle {
    pub(super) fn ask(&mut self, ticket: Ticket, asked: Asked) {
        self.asked.insert(ticket, asked);
    }

    /// An answer has left.
    pub(super) fn hear(&mut self, ticket: Ticket, told: &Told) {
        let asked = self.asked.remove(&ticket).expect("only what was asked is answered");
        // A batch tells how each item went; somebody who waited may have heard of a later one first.
        let is_history = told.body.get("results").is_some();
        self.hear_mentions(asked.client.as_ref(), &told.body, is_history);
        if let Some(code) = told.body.get("code").and_then(Value::as_str) {
            self.hear_refusal(&asked, code);
        }
        if let (200, Some(incarnation), Some(client)) = (told.status, asked.incarnation, asked.client) {
            let epoch = told.body["epoch"].as_u64().unwrap();
            let owner = *self.epochs.entry((client.clone(), epoch)).or_insert(incarnation);
            assert_eq!(owner, incarnation, "epoch {epoch} of {client} was given out twice");
        }
    }

    fn hear_refusal(&mut self, asked: &Asked, code: &str) {
        let Some(key) = &asked.key else { return };
        let facts = self.facts.entry(key.clone()).or_default();
        match code {
            "TXN_NOT_FOUND" => {
                assert!(!facts.seen && !facts.expired, "{key:?} never began, although it was told of: {facts:?}");
            }
            "CLIENT_NOT_FOUND" => assert!(asked.is_begin || !facts.seen, "{key:?} of an unknown client: {facts:?}"),
            "OUTCOME_EXPIRED" | "TXN_ID_TOO_OLD" => {
                facts.expired = true;
            }
            _ => {}
        }
    }

    /// Whatever an answer says about any transaction.
    fn hear_mentions(&mut self, client: Option<&ClientName>, value: &Value, is_history: bool) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.hear_mentions(client, item, is_history)),
            Value::Object(members) => {
                let named = members.get("clientName").map(|name| name.as_str().unwrap().parse().unwrap());
                let client = named.as_ref().or(client);
                if let (Some(client), Some(text)) = (client, members.get("txnId")) {
                    let key = (client.clone(), id(number(text.as_str().unwrap())));
                    self.hear_txn(key, value, is_history);
                }
                members.values().for_each(|member| self.hear_mentions(client, member, is_history));
            }
            _ => {}
        }
    }

    fn hear_txn(&mut self, key: TxnKey, txn: &Value, is_history: bool) {
        let facts = self.facts.entry(key.clone()).or_default();
        assert!(!facts.expired, "{key:?} came back: {txn}");
        // A last commit has neither state nor outcome; a decision has an outcome only.
        let named = txn.get("state").or(txn.get("outcome")).and_then(Value::as_str);
        let state = named.map_or(TxnState::Committed, |name| {
            TxnState::ALL.into_iter().find(|state| state.as_str() == name).unwrap()
        });
        let reason = txn.get("endReason").and_then(Value::as_str).map(str::to_owned);
        facts.seen = true;
        match (facts.outcome.as_mut(), state.outcome()) {
            (Some((before, why)), Some(outcome)) => {
                assert_eq!(*before, outcome, "{key:?} was told both ways");
                if let (Some(why), Some(reason)) = (why.as_ref(), &reason) {
                    assert_eq!(why, reason, "{key:?} has two reasons");
                }
                *why = why.take().or(reason);
            }
            (None, Some(outcome)) => facts.outcome = Some((outcome, reason)),
            (Some(_), None) if is_history => {}
            (Some(before), None) => panic!("{key:?} is {state} again after {before:?}"),
            (None, None) => {
                assert!(!facts.prepared || state == TxnState::Prepared, "{key:?} is {state} again after PREPARED");
                facts.prepared = state == TxnState::Prepared;
            }
        }
        // A state that is told in full cannot fall back from terminal to ending.
        if txn.get("state").is_some() {
            assert!(is_history || !facts.terminal || state.is_terminal(), "{key:?} is {state} again after its end");
            facts.terminal |= state.is_terminal();
        }
    }

    /// Everything told must be on a disk that survives, or legally gone.
    pub(super) fn holds_on(&self, disk: &Snapshot) {
        for (key, facts) in &self.facts {
            let evicted = disk.watermark(&key.0).is_some_and(|through| key.1 <= through);
            let header = disk.state(key);
            let decided = disk.decided(key);
            if facts.expired {
                assert!(evicted && header.is_none() && decided.is_none(), "{key:?} expired, and is back");
                continue;
            }
            let gone = header.is_none() && decided.is_none();
            if facts.seen && gone {
                assert!(evicted, "{key:?} was told of and left no trace: {facts:?}");
                continue;
            }
            if let Some((outcome, _)) = facts.outcome {
                assert_eq!(decided, Some(outcome), "{key:?} was told {outcome}");
            }
            if facts.prepared && decided.is_none() {
                assert_eq!(header, Some(TxnState::Prepared), "{key:?} was told to be PREPARED");
            }
            if facts.terminal {
                assert_eq!(header, None, "{key:?} was told to be over");
            }
        }
        for (client, epoch) in self.epochs.keys() {
            assert!(disk.epoch(client) >= *epoch, "epoch {epoch} of {client} was given out");
        }
    }

    /// The disk after a sync or a load: what is decided there is never contradicted.
    pub(super) fn see_durable(&mut self, disk: &Snapshot) {
        for key in disk.headers.keys().chain(disk.outcomes.keys()) {
            if let (Some(before), now) = (self.durable.get(key), disk.decided(key)) {
                assert_eq!(Some(*before), now, "{key:?} was durably {before}");
            }
        }
        for key in disk.traces() {
            if let Some(outcome) = disk.decided(&key) {
                let before = self.durable.insert(key.clone(), outcome);
                assert!(before.is_none_or(|before| before == outcome), "{key:?} was durably {before:?}");
            }
        }
        for (client, record) in &disk.clients {
            let before = self.durable_epochs.insert(client.clone(), record.epoch.as_u64());
            assert!(before.is_none_or(|before| before <= record.epoch.as_u64()), "the epoch of {client} went back");
        }
        self.holds_on(disk);
    }
}
