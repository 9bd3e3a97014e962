//! Listings: a bounded number of entries per step, and a token that leads on.

use std::{borrow::Cow, collections::BTreeMap, ops::Bound};

use ratified_protocol::{ClientItem, ClientName, Code, List, Outcome, Problem, Txn, TxnId, TxnState};

use crate::{
    calls::open::PayloadBudget,
    effect::{ClientNames, Page, Revision, TxnFilter},
    step::{Refusal, Step},
};

const DEFAULT_PAGE_SIZE: u64 = 50;
const MAX_PAGE_SIZE: u64 = 1000;
/// Most entries one step looks at; a page may come out short, or empty, with a token.
const MAX_VISITS: usize = 5000;

fn bad_token() -> Refusal {
    let detail = "pageToken: must be the nextPageToken of an earlier answer";
    Refusal { problem: Problem::new(Code::InvalidArgument, detail), after: Revision::default() }
}

impl Page {
    fn size(&self) -> usize {
        self.size.unwrap_or(DEFAULT_PAGE_SIZE).clamp(1, MAX_PAGE_SIZE) as usize
    }

    fn client_position(&self) -> Result<Option<ClientName>, Refusal> {
        self.token.as_deref().map(|token| token.parse().map_err(|_| bad_token())).transpose()
    }

    fn txn_position(&self) -> Result<Option<(ClientName, TxnId)>, Refusal> {
        let parse = |token: &str| {
            let (client, id) = token.split_once(',')?;
            client.parse().ok().zip(id.parse().ok())
        };
        self.token.as_deref().map(|token| parse(token).ok_or_else(bad_token)).transpose()
    }
}

impl ClientNames {
    fn prefix(&self) -> Cow<'_, str> {
        match self {
            Self::All => Cow::Borrowed(""),
            Self::From(prefix) => Cow::Borrowed(prefix),
            Self::Of(sink) => Cow::Owned(format!("{sink}.")),
        }
    }

    /// Whether it is one of these, given that it begins with their prefix.
    fn takes(&self, name: &ClientName) -> bool {
        let Self::Of(sink) = self else { return true };
        let slot = name.as_str().get(sink.as_str().len() + 1..).unwrap_or_default();
        !slot.is_empty() && slot.bytes().all(|b| b.is_ascii_digit())
    }
}

impl TxnFilter {
    /// Whether transactions of this client may match.
    fn takes(&self, client: &ClientName) -> bool {
        self.client.as_ref().is_none_or(|wanted| wanted == client)
            && self.client_prefix.as_deref().is_none_or(|prefix| client.as_str().starts_with(prefix))
    }
}

/// Names from a prefix on, behind the last one seen.
fn names_from<'a>(prefix: &'a str, after: Option<&'a ClientName>) -> (Bound<&'a str>, Bound<&'a str>) {
    let from = match after {
        Some(after) if after.as_str() >= prefix => Bound::Excluded(after.as_str()),
        _ => Bound::Included(prefix),
    };
    (from, Bound::Unbounded)
}

impl Step<'_> {
    /// These clients, tombstones included.
    pub(crate) fn list_clients(&self, which: &ClientNames, page: &Page) -> Result<List<ClientItem>, Refusal> {
        let size = page.size();
        let after = page.client_position()?;
        let prefix = which.prefix();
        let names = self.engine.clients.range::<str, _>(names_from(&prefix, after.as_ref())).map(|(name, _)| name);
        let mut items = Vec::new();
        let mut seen = None;
        for (visits, name) in names.take_while(|name| name.as_str().starts_with(&*prefix)).enumerate() {
            if items.len() == size || visits == MAX_VISITS {
                return Ok(List::new(items, seen.map(ClientName::to_string)));
            }
            if which.takes(name) {
                items.push(self.client_item(name));
            }
            seen = Some(name);
        }
        Ok(List::new(items, None))
    }

    pub(crate) fn client_item(&self, name: &ClientName) -> ClientItem {
        let unopened = crate::client::Client::unopened(self.engine.uptime);
        let client = self.client(name).unwrap_or(&unopened);
        let live = [TxnState::Open, TxnState::Prepared, TxnState::Committing, TxnState::Aborting];
        let mut counts: BTreeMap<_, _> = live.into_iter().zip(client.counts).collect();
        for outcome in Outcome::ALL {
            counts.insert(outcome.terminal(), self.engine.preserver.queue_len(name, outcome) as u64);
        }
        let mut item = ClientItem::new(name.clone(), client.record.epoch);
        item.owner = client.owner();
        item.forgotten = client.record.forgotten;
        item.last_committed = client.last_committed_brief();
        item.counts = counts.into_iter().map(|(state, count)| (state.into(), count)).collect();
        item
    }

    /// Transactions: live headers, or what the preserver keeps when `state` asks for a terminal one.
    pub(crate) fn list_txns(&mut self, filter: &TxnFilter, page: &Page) -> Result<List<Txn>, Refusal> {
        let size = page.size();
        let mut position = page.txn_position()?;
        if position.as_ref().is_some_and(|(client, _)| !filter.takes(client)) {
            return Err(bad_token());
        }
        let mut items = Vec::new();
        let mut budget = PayloadBudget::new();
        for _ in 0..MAX_VISITS {
            let Some((client, id)) = self.next_candidate(filter, position.as_ref()) else {
                return Ok(List::new(items, None));
            };
            self.settle(&client, id);
            if let Some(mut txn) = self.matching(filter, &client, id) {
                if items.len() == size {
                    break;
                }
                budget.fit(&mut txn);
                items.push(txn);
            }
            position = Some((client, id));
        }
        Ok(List::new(items, position.map(|(client, id)| format!("{client},{id}"))))
    }

    /// The first transaction behind the position that may match.
    fn next_candidate(
        &self,
        filter: &TxnFilter,
        position: Option<&(ClientName, TxnId)>,
    ) -> Option<(ClientName, TxnId)> {
        if let Some((client, id)) = position
            && let Some(next) = self.next_id(filter, client, Some(*id))
        {
            return Some((client.clone(), next));
        }
        let after = position.map(|(client, _)| client);
        let client = match &filter.client {
            Some(client) => Some(client).filter(|_| after.is_none() && filter.takes(client))?,
            None => {
                let prefix = filter.client_prefix.as_deref().unwrap_or_default();
                let names = names_from(prefix, after);
                let next = if wants_ended(filter) {
                    self.engine.preserver.first_client(names)
                } else {
                    self.engine.busy.range::<str, _>(names).next()
                };
                next.filter(|name| name.as_str().starts_with(prefix))?
            }
        };
        Some((client.clone(), self.next_id(filter, client, None)?))
    }

    fn next_id(&self, filter: &TxnFilter, client: &ClientName, after: Option<TxnId>) -> Option<TxnId> {
        let range = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        if wants_ended(filter) {
            self.engine.preserver.first_entry(client, range)
        } else {
            self.client(client)?.txns.range(range).next().map(|(id, _)| *id)
        }
    }

    fn matching(&self, filter: &TxnFilter, name: &ClientName, id: TxnId) -> Option<Txn> {
        let old_enough = |since: crate::time::Uptime| {
            filter.older_than_ms.is_none_or(|age| self.now.uptime.millis_since(since) >= age)
        };
        if wants_ended(filter) {
            let entry = self.engine.preserver.lookup(name, id)?;
            let ended = entry.terminal?.ended;
            let wanted = Some(entry.outcome.terminal()) == filter.state && old_enough(ended);
            return self.tell(name, id).filter(|_| wanted).map(|(txn, _)| txn);
        }
        let txn = self.txn(name, id)?;
        let wanted = filter.state.is_none_or(|state| state == txn.record.state) && old_enough(txn.record.begun);
        wanted.then(|| txn.view(name, id, self.now.uptime))
    }
}

fn wants_ended(filter: &TxnFilter) -> bool {
    filter.state.is_some_and(TxnState::is_terminal)
}
