//! Requests parked by `waitMs`: answered when their transaction is terminal or their participant has something to
//! apply, and at the latest when they have waited long enough.

use std::collections::{BTreeMap, BTreeSet};

use ratified_protocol::{ClientName, ParticipantName, TxnId};

use crate::{effect::Ticket, time::Uptime};

/// What a parked request waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WaitFor {
    /// A terminal state.
    Terminal {
        client: ClientName,
        txn_id: TxnId,
        /// What the request's own step said.
        replayed: bool,
        /// Whether it asked for an outcome (202 while acknowledgements are missing) or only looked (200).
        decides: bool,
    },
    /// A decision numbered above `after`.
    Decision { participant: ParticipantName, after: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Topic {
    Txn(ClientName, TxnId),
    Participant(ParticipantName),
}

impl WaitFor {
    fn topic(&self) -> Topic {
        match self {
            Self::Terminal { client, txn_id, .. } => Topic::Txn(client.clone(), *txn_id),
            Self::Decision { participant, .. } => Topic::Participant(participant.clone()),
        }
    }
}

/// The parked requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waiting {
    parked: BTreeMap<Ticket, (Uptime, WaitFor)>,
    by_topic: BTreeMap<Topic, BTreeSet<Ticket>>,
    by_deadline: BTreeSet<(Uptime, Ticket)>,
}

impl Waiting {
    pub(crate) fn len(&self) -> usize {
        self.parked.len()
    }

    pub(crate) fn park(&mut self, ticket: Ticket, until: Uptime, what: WaitFor) {
        self.by_topic.entry(what.topic()).or_default().insert(ticket);
        self.by_deadline.insert((until, ticket));
        self.parked.insert(ticket, (until, what));
    }

    pub(crate) fn next_deadline(&self) -> Option<Uptime> {
        self.by_deadline.first().map(|(until, _)| *until)
    }

    pub(crate) fn take_due(&mut self, now: Uptime) -> Option<(Ticket, WaitFor)> {
        let (until, ticket) = *self.by_deadline.first()?;
        if until > now { None } else { self.take(ticket) }
    }

    pub(crate) fn take_for_txn(&mut self, client: &ClientName, id: TxnId) -> Vec<(Ticket, WaitFor)> {
        self.take_topic(&Topic::Txn(client.clone(), id))
    }

    pub(crate) fn take_for_participant(&mut self, name: &ParticipantName) -> Vec<(Ticket, WaitFor)> {
        self.take_topic(&Topic::Participant(name.clone()))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &WaitFor> {
        self.parked.values().map(|(_, what)| what)
    }

    fn take_topic(&mut self, topic: &Topic) -> Vec<(Ticket, WaitFor)> {
        let tickets = self.by_topic.get(topic).cloned().unwrap_or_default();
        tickets.into_iter().filter_map(|ticket| self.take(ticket)).collect()
    }

    fn take(&mut self, ticket: Ticket) -> Option<(Ticket, WaitFor)> {
        let (until, what) = self.parked.remove(&ticket)?;
        self.by_deadline.remove(&(until, ticket));
        let topic = what.topic();
        if let Some(tickets) = self.by_topic.get_mut(&topic) {
            tickets.remove(&ticket);
            if tickets.is_empty() {
                self.by_topic.remove(&topic);
            }
        }
        Some((ticket, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(name: &str) -> WaitFor {
        WaitFor::Decision { participant: name.parse().unwrap(), after: 0 }
    }

    #[test]
    fn a_parked_request_is_given_back_once() {
        let mut waiting = Waiting::default();
        let at = Uptime::from_millis;
        waiting.park(Ticket(1), at(5), decision("a"));
        waiting.park(Ticket(2), at(3), decision("a"));
        waiting.park(Ticket(3), at(4), decision("b"));
        assert_eq!(waiting.next_deadline(), Some(at(3)));
        assert_eq!(waiting.take_due(at(2)), None);
        assert_eq!(waiting.take_due(at(3)), Some((Ticket(2), decision("a"))));
        assert_eq!(waiting.take_for_participant(&"a".parse().unwrap()), [(Ticket(1), decision("a"))]);
        assert_eq!(waiting.take_for_participant(&"a".parse().unwrap()), []);
        assert_eq!(waiting.take_due(at(9)), Some((Ticket(3), decision("b"))));
        assert_eq!((waiting.len(), waiting.next_deadline()), (0, None));
    }
}
