//! The door to the headers: whoever changes one does so here, and everything derived from it follows by itself (timers,
//! counts, sums of bytes, the index by participant, the clients that are busy).

use ratified_protocol::{ClientName, ParticipantName, TxnId, TxnState};

use crate::{client::live_index, engine::Engine, transaction::Transaction};

/// What the index by participant holds of a header.
#[derive(PartialEq, Eq)]
struct Seats {
    members: Vec<ParticipantName>,
    /// The decision's number, and who still has to acknowledge it.
    awaited: Option<(u64, Vec<ParticipantName>)>,
}

impl Seats {
    fn of(txn: &Transaction) -> Self {
        let awaited = txn.record.decision.map(|decision| (decision.number, txn.missing_acks().cloned().collect()));
        Self { members: txn.members().cloned().collect(), awaited }
    }
}

fn payload_len(txn: &Transaction) -> u64 {
    txn.payload.as_ref().map_or(0, |payload| payload.len() as u64)
}

impl Engine {
    /// Changes a header; `None` when there is none. What has to be written is the caller's to say.
    pub(crate) fn change<R>(
        &mut self,
        name: &ClientName,
        id: TxnId,
        change: impl FnOnce(&mut Transaction) -> R,
    ) -> Option<R> {
        let client = self.clients.get_mut(name)?;
        let epoch = client.record.epoch;
        let is_overtaken = |txn: &Transaction| txn.record.state == TxnState::Open && txn.record.epoch < epoch;
        let txn = client.txns.get_mut(&id)?;
        let was_overtaken = is_overtaken(txn);
        self.timers.remove(name, id, txn);
        let (state, bytes, seats) = (txn.record.state, payload_len(txn), Seats::of(txn));
        let result = change(txn);
        self.timers.add(name, id, txn);
        self.payload_bytes = self.payload_bytes - bytes + payload_len(txn);
        let (state_now, seats_now) = (txn.record.state, Seats::of(txn));
        if was_overtaken && !is_overtaken(txn) {
            client.overtaken -= 1;
        }
        if state != state_now {
            self.count(name, state, -1);
            self.count(name, state_now, 1);
        }
        if seats != seats_now {
            self.vacate(name, id, &seats);
            self.seat(name, id, &seats_now);
        }
        Some(result)
    }

    /// Puts a header in its place. Its client must be there; without it nothing is done.
    pub(crate) fn insert_header(&mut self, name: &ClientName, id: TxnId, txn: Transaction) {
        let Some(client) = self.clients.get_mut(name) else { return };
        let (state, seats) = (txn.record.state, Seats::of(&txn));
        self.timers.add(name, id, &txn);
        self.payload_bytes += payload_len(&txn);
        client.overtaken += u64::from(client.has_overtaken(&txn));
        let before = client.txns.insert(id, txn);
        debug_assert!(before.is_none(), "an id names one transaction for ever");
        self.busy.insert(name.clone());
        self.count(name, state, 1);
        self.seat(name, id, &seats);
    }

    /// Takes a header away. The payload of the client's last commit stays counted: it outlives its header.
    pub(crate) fn remove_header(&mut self, name: &ClientName, id: TxnId) -> Option<Transaction> {
        let client = self.clients.get_mut(name)?;
        let txn = client.txns.remove(&id)?;
        if client.txns.is_empty() {
            self.busy.remove(name);
        }
        if !client.is_last_committed(id) {
            self.payload_bytes -= payload_len(&txn);
        }
        self.timers.remove(name, id, &txn);
        self.count(name, txn.record.state, -1);
        self.vacate(name, id, &Seats::of(&txn));
        Some(txn)
    }

    fn count(&mut self, client: &ClientName, state: TxnState, change: i64) {
        if let Some(client) = self.clients.get_mut(client) {
            client.count(state, change);
        }
        if let Some(count) = live_index(state).and_then(|i| self.live.get_mut(i)) {
            *count = count.saturating_add_signed(change);
        }
    }

    fn seat(&mut self, name: &ClientName, id: TxnId, seats: &Seats) {
        for participant in &seats.members {
            self.participants.join(participant, name, id);
        }
        if let Some((number, awaited)) = &seats.awaited {
            for participant in awaited {
                self.participants.expect_ack(participant, *number, name, id);
            }
        }
    }

    fn vacate(&mut self, name: &ClientName, id: TxnId, seats: &Seats) {
        for participant in &seats.members {
            self.participants.leave(participant, name, id);
        }
        if let Some((number, awaited)) = &seats.awaited {
            for participant in awaited {
                self.participants.settle(participant, *number);
            }
        }
    }
}
