//! Rewriting: everything that is there is put again, client by client, so that a store that is a log may give up what it
//! wrote before the round began. What is new meanwhile is put by its own step, what is removed meanwhile is not put.

use std::ops::Bound::{Excluded, Unbounded};

use ratified_protocol::{ClientName, ParticipantName, TxnId};

use crate::{engine::Engine, record::Key, step::Step};

/// What was put last in this round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A client.
    Client(ClientName),
    /// A live transaction, its payload and its acknowledgements.
    Transaction(ClientName, TxnId),
    /// A preserved outcome.
    Outcome(ClientName, TxnId),
    /// The payload of a client's last commit. Behind its transactions: one that ends before the round comes to it leaves its
    /// payload here, unwritten since it was prepared.
    LastPayload(ClientName),
    /// A participant; the clients are through.
    Participant(ParticipantName),
}

impl Engine {
    /// What follows a place; `None` ends the round.
    fn place_behind(&self, place: Option<&Place>) -> Option<Place> {
        match place {
            None => self.client_behind(None),
            Some(Place::Client(name)) => self.transaction_behind(name, None),
            Some(Place::Transaction(name, id)) => self.transaction_behind(name, Some(*id)),
            Some(Place::Outcome(name, id)) => self.outcome_behind(name, Some(*id)),
            Some(Place::LastPayload(name)) => self.client_behind(Some(name)),
            Some(Place::Participant(name)) => self.participant_behind(Some(name)),
        }
    }

    fn client_behind(&self, name: Option<&ClientName>) -> Option<Place> {
        let next = self.clients.range::<ClientName, _>((name.map_or(Unbounded, Excluded), Unbounded)).next();
        next.map(|(name, _)| Place::Client(name.clone())).or_else(|| self.participant_behind(None))
    }

    fn transaction_behind(&self, name: &ClientName, id: Option<TxnId>) -> Option<Place> {
        let txns = self.clients.get(name).map(|client| &client.txns);
        let next = txns.and_then(|txns| txns.range((id.map_or(Unbounded, Excluded), Unbounded)).next());
        next.map(|(id, _)| Place::Transaction(name.clone(), *id)).or_else(|| self.outcome_behind(name, None))
    }

    fn outcome_behind(&self, name: &ClientName, id: Option<TxnId>) -> Option<Place> {
        let next = self.preserver.first_entry(name, (id.map_or(Unbounded, Excluded), Unbounded));
        let has_payload = self.clients.get(name).is_some_and(|client| client.last_payload.is_some());
        let payload =
            || if has_payload { Some(Place::LastPayload(name.clone())) } else { self.client_behind(Some(name)) };
        next.map(|id| Place::Outcome(name.clone(), id)).or_else(payload)
    }

    fn participant_behind(&self, name: Option<&ParticipantName>) -> Option<Place> {
        self.participants.name_behind(name).map(|name| Place::Participant(name.clone()))
    }

    fn keys_at(&self, place: &Place) -> Vec<Key> {
        match place {
            Place::Client(name) => vec![Key::Client(name.clone())],
            Place::LastPayload(name) => {
                let last = self.clients.get(name).and_then(|client| client.record.last_committed);
                last.map(|last| Key::Payload(name.clone(), last.txn_id)).into_iter().collect()
            }
            Place::Transaction(name, id) => {
                let acks = self.clients.get(name).and_then(|client| client.txns.get(id)).map(|txn| &txn.acks);
                let acks =
                    acks.into_iter().flatten().map(|participant| Key::Ack(name.clone(), *id, participant.clone()));
                let own = [Key::Transaction(name.clone(), *id), Key::Payload(name.clone(), *id)];
                own.into_iter().chain(acks).collect()
            }
            Place::Outcome(name, id) => vec![Key::Outcome(name.clone(), *id)],
            Place::Participant(name) => vec![Key::Participant(name.clone())],
        }
    }
}

impl Step<'_> {
    /// Puts what follows in this round; `false`: the round is done, and the next call begins another one. Nothing
    /// changes by it, so that no reply has to wait for it.
    pub(crate) fn rewrite_next(&mut self) -> bool {
        let place = self.engine.place_behind(self.engine.rewritten.as_ref());
        let keys = place.as_ref().map(|place| self.engine.keys_at(place));
        for key in keys.into_iter().flatten() {
            if self.engine.record_at(&key).is_some() {
                self.engine.dirty.entry(key).or_insert(true);
            }
        }
        self.engine.rewritten = place;
        self.engine.rewritten.is_some()
    }
}
