//! What every check needs: a fresh place, processes over it, transactions, and failures that say what was seen.

use std::fmt::Display;

use ratified_protocol::{CheckpointId, ClientName, Epoch};

use super::{Failure, SinkHarness};
use crate::{
    error::SinkError,
    ids::IdSource,
    sink::{Committed, SinkCommitter, SinkWriter, TwoPhaseSink, TxnContext},
};

type Sink<H> = <H as SinkHarness>::Sink;
pub(super) type Handle<H> = <Sink<H> as TwoPhaseSink>::Handle;

/// The client of checks that need one only.
pub(super) const CLIENT: &str = "testkit.sink.0";

/// A fresh place and the check that works on it.
pub(super) struct Scene<'h, H: SinkHarness> {
    pub(super) harness: &'h H,
    pub(super) at: H::Location,
    behaviour: &'static str,
    ids: IdSource,
}

/// One process over the place.
pub(super) struct Process<H: SinkHarness> {
    pub(super) writer: <Sink<H> as TwoPhaseSink>::Writer,
    pub(super) committer: <Sink<H> as TwoPhaseSink>::Committer,
}

/// A transaction that went through `pre_commit`.
#[derive(Clone)]
pub(super) struct Staged<T> {
    pub(super) txn: TxnContext,
    pub(super) handle: T,
}

impl<'h, H: SinkHarness> Scene<'h, H> {
    pub(super) async fn new(harness: &'h H, behaviour: &'static str) -> Result<Self, Failure> {
        let fresh = harness.fresh().await;
        let at = fresh.map_err(|e| Failure { behaviour, seen: format!("the harness gave no fresh location: {e}") })?;
        Ok(Self { harness, at, behaviour, ids: IdSource::above([]) })
    }

    pub(super) fn failure(&self, seen: impl Into<String>) -> Failure {
        Failure { behaviour: self.behaviour, seen: seen.into() }
    }

    /// What must succeed.
    pub(super) fn ok<T, E: Display>(&self, call: &str, result: Result<T, E>) -> Result<T, Failure> {
        result.map_err(|error| self.failure(format!("{call}: {error}")))
    }

    pub(super) async fn process(&self) -> Result<Process<H>, Failure> {
        let sink = self.ok("the harness gave no instance", self.harness.instance(&self.at).await)?;
        let committer = self.ok("committer", sink.committer().await)?;
        Ok(Process { writer: self.ok("writer", sink.writer().await)?, committer })
    }

    /// A client by its name.
    pub(super) fn client(&self, name: &str) -> Result<ClientName, Failure> {
        self.ok("client name", name.parse())
    }

    /// A new transaction; ids ascend.
    pub(super) fn txn(&mut self, client: &str) -> Result<TxnContext, Failure> {
        let id = self.ids.draw();
        Ok(TxnContext::new(self.client(client)?, self.ok("draw an id", id)?, Epoch::FIRST))
    }

    /// The records with these numbers.
    pub(super) fn records(&self, numbers: impl IntoIterator<Item = u64>) -> Vec<<Sink<H> as TwoPhaseSink>::Record> {
        numbers.into_iter().map(|number| self.harness.record(number)).collect()
    }

    /// Stages records under a transaction, one write each, up to and with `pre_commit`.
    pub(super) async fn stage_as(
        &self,
        process: &mut Process<H>,
        txn: TxnContext,
        numbers: &[u64],
    ) -> Result<Staged<Handle<H>>, Failure> {
        let mut handle = self.ok("begin", process.writer.begin(&txn).await)?;
        for number in numbers {
            let records = self.records([*number]);
            self.ok("write", process.writer.write(&txn, &mut handle, records).await)?;
        }
        let txn = txn.with_checkpoint(Some(CheckpointId::new(1)));
        self.ok("pre_commit", process.writer.pre_commit(&txn, &mut handle).await)?;
        Ok(Staged { txn, handle })
    }

    /// Stages records under a new transaction of [`CLIENT`].
    pub(super) async fn stage(
        &mut self,
        process: &mut Process<H>,
        numbers: &[u64],
    ) -> Result<Staged<Handle<H>>, Failure> {
        let txn = self.txn(CLIENT)?;
        self.stage_as(process, txn, numbers).await
    }

    /// A first commit.
    pub(super) async fn commit(&self, process: &Process<H>, staged: &Staged<Handle<H>>) -> Result<(), Failure> {
        match self.ok("commit", process.committer.commit(&staged.txn, &staged.handle).await)? {
            Committed::Now => Ok(()),
            Committed::Already => Err(self.failure("the first commit answered Already")),
        }
    }

    /// A repeated commit.
    pub(super) async fn commit_again(&self, process: &Process<H>, staged: &Staged<Handle<H>>) -> Result<(), Failure> {
        match self.ok("repeated commit", process.committer.commit(&staged.txn, &staged.handle).await)? {
            Committed::Already => Ok(()),
            Committed::Now => Err(self.failure("a repeated commit answered Now")),
        }
    }

    /// A commit of what is neither staged nor visible.
    pub(super) async fn commit_lost(&self, process: &Process<H>, staged: &Staged<Handle<H>>) -> Result<(), Failure> {
        match process.committer.commit(&staged.txn, &staged.handle).await {
            Err(SinkError::Rejected(_)) => Ok(()),
            Ok(committed) => Err(self.failure(format!("a commit of removed data answered {committed:?}"))),
            Err(error) => Err(self.failure(format!("a commit of removed data was not rejected: {error}"))),
        }
    }

    pub(super) async fn abort(&self, process: &Process<H>, staged: &Staged<Handle<H>>) -> Result<(), Failure> {
        self.ok("abort", process.committer.abort(&staged.txn, Some(&staged.handle)).await)
    }

    pub(super) async fn abort_by_id(&self, process: &Process<H>, txn: &TxnContext) -> Result<(), Failure> {
        self.ok("abort without a handle", process.committer.abort(txn, None).await)
    }

    /// Exactly these records are visible, in this order.
    pub(super) async fn expect_visible(&self, when: &str, expected: &[u64]) -> Result<(), Failure> {
        let visible = self.ok("the harness cannot read", self.harness.visible(&self.at).await)?;
        if visible == expected {
            return Ok(());
        }
        Err(self.failure(format!("{when}, {} are visible, not {}", brief(&visible), brief(expected))))
    }

    /// Exactly these records are visible, in any order: more than one client wrote them.
    pub(super) async fn expect_visible_unordered(&self, when: &str, expected: &[u64]) -> Result<(), Failure> {
        let mut visible = self.ok("the harness cannot read", self.harness.visible(&self.at).await)?;
        visible.sort_unstable();
        if visible == expected {
            return Ok(());
        }
        Err(self.failure(format!("{when}, {} are visible, not {}", brief(&visible), brief(expected))))
    }

    /// Exactly these transactions of the client are staged.
    pub(super) async fn expect_staged(
        &self,
        process: &Process<H>,
        when: &str,
        client: &str,
        expected: &[&TxnContext],
    ) -> Result<(), Failure> {
        let listed = process.committer.list_staged(&self.client(client)?).await;
        let mut listed = self.ok("list_staged", listed)?;
        listed.sort_unstable();
        let mut expected: Vec<_> = expected.iter().map(|txn| txn.txn_id).collect();
        expected.sort_unstable();
        if listed == expected {
            return Ok(());
        }
        Err(self.failure(format!("{when}, list_staged({client}) names {listed:?}, not {expected:?}")))
    }

    /// Exactly these transactions of the client are told to be visible, in this order.
    pub(super) async fn expect_listed_visible(
        &self,
        process: &Process<H>,
        when: &str,
        client: &str,
        expected: &[&TxnContext],
    ) -> Result<(), Failure> {
        let listed = self.ok("list_visible", process.committer.list_visible(&self.client(client)?).await)?;
        let expected: Vec<_> = expected.iter().map(|txn| txn.txn_id).collect();
        if listed.as_ref() == Some(&expected) {
            return Ok(());
        }
        Err(self.failure(format!("{when}, list_visible({client}) names {listed:?}, not {expected:?}")))
    }
}

/// The transaction as the next owner of its client asks for it.
pub(super) fn by_next_owner(txn: &TxnContext) -> TxnContext {
    let epoch = Epoch::new(txn.epoch.as_u64().saturating_add(1));
    TxnContext { epoch, ..txn.clone() }
}

fn brief(numbers: &[u64]) -> String {
    match numbers {
        [first, .., last] if numbers.len() > 16 => format!("{} records, {first} to {last},", numbers.len()),
        _ => format!("{numbers:?}"),
    }
}
