//! Pulls decisions and has them applied, client by client: what holds one client up holds up no other.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use futures_util::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use ratified_protocol::{ClientName, Decision};

use super::{ParticipantError, Shared};
use crate::{error::ClientError, retry::Limit, sink::TwoPhaseSink};

type Run<'a> = Pin<Box<dyn Future<Output = (ClientName, Result<(), ParticipantError>)> + Send + 'a>>;

/// What is being applied: at most one run per client, so that its decisions are applied one after the other.
#[derive(Default)]
struct Runs<'a> {
    running: FuturesUnordered<Run<'a>>,
    busy: BTreeSet<ClientName>,
    /// Clients of which something was told while they were busy; it is asked for again when they are done.
    behind: BTreeSet<ClientName>,
}

impl<'a> Runs<'a> {
    fn start(&mut self, client: ClientName, run: impl Future<Output = Result<(), ParticipantError>> + Send + 'a) {
        self.busy.insert(client.clone());
        self.running.push(Box::pin(run.map(|ended| (client, ended))));
    }

    /// Notes that a client's run has ended; whether something was told meanwhile.
    fn end(&mut self, client: &ClientName) -> bool {
        self.busy.remove(client);
        self.behind.remove(client)
    }
}

impl<S: TwoPhaseSink> Shared<S> {
    /// Runs until something is definitely wrong, and returns what, once the clients that were being served have come to
    /// an end. It is told before: an end may be long in coming.
    async fn pull(&self, wait: Duration) -> ParticipantError {
        let (mut runs, mut cursor) = (Runs::default(), None);
        loop {
            match self.next(wait, &mut runs, &mut cursor).await {
                Ok(()) => {}
                Err(ParticipantError::Coordinator(error @ ClientError::Unanswered { .. })) => {
                    tracing::warn!(participant = %self.name, %error, "the coordinator is asked again");
                    cursor = None;
                }
                Err(error) => {
                    self.fail(error.clone());
                    while let Some((client, ended)) = runs.running.next().await {
                        if let Err(error) = ended {
                            tracing::error!(participant = %self.name, %client, %error, "a decision cannot be applied");
                        }
                    }
                    return error;
                }
            }
        }
    }

    /// Until the coordinator has answered once, or a run has ended after which it must be asked anew.
    async fn next<'a>(
        &'a self,
        wait: Duration,
        runs: &mut Runs<'a>,
        cursor: &mut Option<String>,
    ) -> Result<(), ParticipantError> {
        let after = cursor.clone();
        let asked = self.coordinator.decisions(&self.name, Some(wait), after.as_deref());
        tokio::pin!(asked);
        let answer = loop {
            tokio::select! {
                // In this order, so that a simulation is the same again.
                biased;
                Some((client, ended)) = runs.running.next() => {
                    if runs.end(&client) {
                        *cursor = None;
                        return ended;
                    }
                    ended?;
                }
                answer = &mut asked => break answer?,
            }
        };
        *cursor = Some(answer.cursor);
        self.note_store().await?;
        if answer.decisions.is_empty() {
            // Nothing is decided; what waits must still be waited for.
            self.reconcile_idle(runs);
        } else {
            self.apply_idle(answer.decisions, runs);
        }
        Ok(())
    }

    /// Has decisions applied, oldest first per client. Those of a client that is busy are asked for again.
    fn apply_idle<'a>(&'a self, decisions: Vec<Decision>, runs: &mut Runs<'a>) {
        let mut by_client = BTreeMap::<ClientName, Vec<Decision>>::new();
        for decision in decisions {
            by_client.entry(decision.client_name.clone()).or_default().push(decision);
        }
        for (client, decisions) in by_client {
            if runs.busy.contains(&client) {
                runs.behind.insert(client);
            } else {
                runs.start(client, self.apply_all(decisions));
            }
        }
    }

    fn reconcile_idle<'a>(&'a self, runs: &mut Runs<'a>) {
        for (client, live) in self.live_by_client() {
            if !runs.busy.contains(&client) {
                runs.start(client, async { self.reconcile_all(live, Limit::Never).await.map(drop) });
            }
        }
    }
}

/// The background half.
pub(super) async fn run<S: TwoPhaseSink>(shared: Arc<Shared<S>>, wait: Duration) {
    let pulled = std::panic::AssertUnwindSafe(shared.pull(wait)).catch_unwind().await;
    shared.fail(pulled.unwrap_or(ParticipantError::Panicked));
}
