//! Calls that grow with data: a bounded page of each in a step, so that none holds up the others. What a page changes is
//! durable like any step; the answer leaves after the last one. A start that finds one half done goes on with it.

use std::{collections::VecDeque, ops::Bound};

use ratified_protocol::{ClientName, Code, Epoch, OpenRequest, ParticipantName, PreservedOutcome, Problem, TxnId};

use crate::{
    effect::{Answer, Effect, Revision, Sweep, Ticket},
    step::{Refusal, Step},
};

/// Where a walk over the ids of a client goes on.
pub(crate) type From = Bound<TxnId>;

/// A call on its way.
#[derive(Debug, Clone)]
pub(crate) enum Paged {
    /// `open`: what older epochs have left OPEN is aborted, ascending by id. The epoch was raised with the first page.
    Fence { ticket: Option<Ticket>, client: ClientName, epoch: Epoch, request: Option<Box<OpenRequest>>, from: From },
    /// `retire`: the participant leaves what it takes part in. It is retired since the first page.
    Retire { ticket: Option<Ticket>, participant: ParticipantName },
    /// The preserver's list: first what is over is ended, then outcomes are collected.
    List { ticket: Ticket, client: ClientName, from: From, collected: Option<Collected> },
}

/// Outcomes with their order of termination.
pub(crate) type Collected = Vec<(u64, PreservedOutcome)>;

impl Paged {
    const fn ticket(&self) -> Option<Ticket> {
        match self {
            Self::Fence { ticket, .. } | Self::Retire { ticket, .. } => *ticket,
            Self::List { ticket, .. } => Some(*ticket),
        }
    }

    fn is_about_the_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fence { client, .. }, Self::Fence { client: other, .. }) => client == other,
            (Self::Retire { participant, .. }, Self::Retire { participant: other, .. }) => participant == other,
            _ => false,
        }
    }

    /// The rest of it for nobody who waits, from the beginning: it may take the place of one that has seen less. Nothing
    /// if only the answer mattered.
    fn unattended(self) -> Option<Self> {
        match self {
            Self::Fence { client, epoch, .. } => {
                Some(Self::Fence { ticket: None, client, epoch, request: None, from: Bound::Unbounded })
            }
            Self::Retire { participant, .. } => Some(Self::Retire { ticket: None, participant }),
            Self::List { .. } => None,
        }
    }
}

/// The calls that are not done, in the order of their turns.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pages(VecDeque<Paged>);

impl Pages {
    /// Takes a call that is not done. Of those that nobody waits for there is one of each client and participant.
    pub(crate) fn push(&mut self, one: Paged) {
        let known = self.0.iter_mut().find(|known| known.ticket().is_none() && known.is_about_the_same(&one));
        match (one.ticket(), known) {
            (None, Some(known)) => *known = one,
            _ => self.0.push_back(one),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many of them somebody waits for.
    pub(crate) fn attended(&self) -> usize {
        self.0.iter().filter(|one| one.ticket().is_some()).count()
    }

    /// Whether this client is being fenced.
    pub(crate) fn fences(&self, name: &ClientName) -> bool {
        self.0.iter().any(|one| matches!(one, Paged::Fence { client, .. } if client == name))
    }

    /// Whether this participant is being retired.
    pub(crate) fn retires(&self, name: &ParticipantName) -> bool {
        self.0.iter().any(|one| matches!(one, Paged::Retire { participant, .. } if participant == name))
    }
}

impl Step<'_> {
    /// Takes a call's first page, or its next one.
    pub(crate) fn go_on(&mut self, one: Paged) {
        let Some(rest) = self.page(one) else { return };
        let rest = match rest.ticket() {
            // Only the answer is left to do, and it is as large as it is.
            Some(_) if !self.may_park() && matches!(rest, Paged::List { .. }) => return self.go_on(rest),
            Some(ticket) if !self.may_park() => {
                let detail = "too many calls wait; what was begun goes on, send the same request again";
                let problem = Problem::new(Code::Overloaded, detail);
                self.reply_now(ticket, Answer::Problem(Box::new(problem)));
                rest.unattended()
            }
            _ => Some(rest),
        };
        if let Some(rest) = rest {
            self.engine.pages.push(rest);
            self.out.push(Effect::SweepAgain(Sweep::Calls));
        }
    }

    /// The next page of the call whose turn it is.
    pub(crate) fn sweep_calls(&mut self) {
        if let Some(one) = self.engine.pages.0.pop_front() {
            self.go_on(one);
        }
        let again = Effect::SweepAgain(Sweep::Calls);
        if !self.engine.pages.is_empty() && self.out.last() != Some(&again) {
            self.out.push(again);
        }
    }

    /// What is left after one page; nothing, and the call is answered.
    fn page(&mut self, one: Paged) -> Option<Paged> {
        match one {
            Paged::Fence { ticket, client, epoch, request, from } => {
                if let Some(from) = self.fence_page(&client, from) {
                    return Some(Paged::Fence { ticket, client, epoch, request, from });
                }
                self.opened(ticket, &client, epoch, request.as_deref());
                None
            }
            Paged::Retire { ticket, participant } => {
                if self.leave_page(&participant) {
                    return Some(Paged::Retire { ticket, participant });
                }
                if let Some(ticket) = ticket {
                    let answer = self.participant_answer(&participant);
                    self.reply_now(ticket, Answer::Participant(answer));
                }
                None
            }
            Paged::List { ticket, client, from, collected: None } => {
                if let Some(from) = self.settle_page(&client, from) {
                    return Some(Paged::List { ticket, client, from, collected: None });
                }
                self.page(Paged::List { ticket, client, from: Bound::Unbounded, collected: Some(Vec::new()) })
            }
            Paged::List { ticket, client, from, collected: Some(mut collected) } => {
                match self.collect_page(&client, from, &mut collected) {
                    Some(from) => Some(Paged::List { ticket, client, from, collected: Some(collected) }),
                    None => {
                        let result = self.preserver_answer(&client, collected);
                        self.reply(ticket, result.map(|(answer, after)| (Answer::Preserver(Box::new(answer)), after)));
                        None
                    }
                }
            }
        }
    }

    /// Ends what older epochs have left OPEN among the next transactions of a client. Where to go on, if any is left.
    fn fence_page(&mut self, name: &ClientName, from: From) -> Option<From> {
        let is_left = |step: &Self| step.client(name).is_some_and(|client| client.overtaken > 0);
        if !is_left(self) {
            return None;
        }
        // One that began after the walk had passed its id, under an epoch that was overtaken since: from the beginning.
        let next = self.settle_page(name, from).unwrap_or(Bound::Unbounded);
        is_left(self).then_some(next)
    }

    /// Ends what is over among the next transactions of a client. Where to go on, if there are more.
    fn settle_page(&mut self, name: &ClientName, from: From) -> Option<From> {
        let client = self.client(name)?;
        let page: Vec<_> =
            client.txns.range((from, Bound::Unbounded)).map(|(id, _)| *id).take(self.page_len()).collect();
        for id in &page {
            self.settle(name, *id);
        }
        let last = *page.last()?;
        let rest = (Bound::Excluded(last), Bound::Unbounded);
        let is_more = self.client(name).is_some_and(|client| client.txns.range(rest).next().is_some());
        is_more.then_some(Bound::Excluded(last))
    }

    /// Answers an `open` that has fenced all there was.
    fn opened(&mut self, ticket: Option<Ticket>, name: &ClientName, epoch: Epoch, request: Option<&OpenRequest>) {
        let (Some(ticket), Some(request)) = (ticket, request) else { return };
        self.settle_listed(name);
        let result = match self.client(name) {
            Some(client) if client.record.epoch != epoch || client.record.forgotten => {
                Err(self.refuse_superseded(name, request))
            }
            _ => Ok(self.open_answer(name)),
        };
        self.reply(ticket, result.map(|(answer, after)| (Answer::Open(Box::new(answer)), after)));
    }

    /// Most entries of a page.
    pub(crate) fn page_len(&self) -> usize {
        self.engine.limits.page.max(1)
    }

    fn collect_page(&self, name: &ClientName, from: From, collected: &mut Collected) -> Option<From> {
        let mut last = None;
        let entries = self.engine.preserver.entries_from(name, from).take(self.page_len() + 1);
        for (n, (id, entry)) in entries.enumerate() {
            if n == self.page_len() {
                return last;
            }
            last = Some(Bound::Excluded(id));
            // What is not terminal yet is newer than anything that is.
            let order = entry.terminal.map_or(u64::MAX, |terminal| terminal.termination);
            collected.push((order, self.preserved_outcome(id, entry)));
        }
        None
    }
}

/// What a listing comes to; as any answer it leaves when the step it depends on is synced.
pub(crate) type Listed<T> = Result<(T, Revision), Refusal>;
