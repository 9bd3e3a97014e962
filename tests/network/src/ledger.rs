//! A client that uses the coordinator directly, with participants that pull: every way to end a transaction, by one caller
//! or two that race, at once or after a crash.

use std::time::Duration;

use ratified::{
    ClientError, ClientName, Code, CoordinatorClient, Epoch, Outcome, ParticipantName, TxnId, TxnState,
    protocol::{
        BatchItem, BatchOp, BatchRequest, BeginRequest, CommitRequest, EpochRequest, Incarnation, OpenRequest,
        ParticipantSet, PrepareRequest, Txn,
    },
};
use uuid::Uuid;

use crate::world::{Host, World, client};

const CLIENT: &str = "ledger";
const TRANSACTIONS: usize = 8;

/// What the client keeps on its own disk.
#[derive(Debug, Default)]
pub struct LedgerState {
    drawn: Vec<(TxnId, bool)>,
    has_opened: bool,
    /// Whether every transaction is known to have come to its end.
    pub is_done: bool,
}

struct Session {
    world: World,
    coordinator: CoordinatorClient,
    client: ClientName,
    epoch: Epoch,
}

/// Runs sessions until everything is ended.
pub async fn run(world: World, host: Host) {
    while !world.ledger().is_done {
        if let Err(error) = session(&world, host).await {
            // Its own older duplicates may be in the way; a refusal that never may come is the oracle's to judge.
            let code = error.code().map_or_else(|| "no answer".to_owned(), |code| format!("{code:?}"));
            world.note(format!("ledger fails: {code}"));
            world.linger(200).await;
        }
    }
    std::future::pending::<()>().await;
}

async fn session(world: &World, host: Host) -> Result<(), ClientError> {
    let coordinator = client(world, host);
    let client: ClientName = CLIENT.parse().expect("a name");
    let create = !world.ledger().has_opened;
    let request = OpenRequest { incarnation: Incarnation::new(Uuid::new_v4()), owner: None, create, generation: None };
    let epoch = coordinator.open(&client, &request).await?.epoch;
    world.ledger().has_opened = true;
    let session = Session { world: world.clone(), coordinator, client, epoch };
    session.settle().await?;
    while world.ledger().drawn.len() < TRANSACTIONS {
        session.one().await?;
        world.linger(150).await;
    }
    session.settle().await?;
    world.ledger().is_done = true;
    Ok(())
}

impl Session {
    fn end(&self, id: TxnId) {
        self.world.ledger().drawn.iter_mut().filter(|(drawn, _)| *drawn == id).for_each(|(_, ended)| *ended = true);
    }

    /// Brings to an end whatever has none.
    async fn settle(&self) -> Result<(), ClientError> {
        let open: Vec<_> = self.world.ledger().drawn.iter().filter(|(_, ended)| !ended).map(|(id, _)| *id).collect();
        for id in open {
            loop {
                match self.coordinator.get(&self.client, id, Some(Duration::from_secs(1))).await {
                    Ok(txn) if txn.state.is_terminal() => break,
                    Ok(txn) if txn.state == TxnState::Prepared && self.world.roll(2) == 0 => {
                        self.commit(id, None).await?
                    }
                    Ok(txn) if txn.state.outcome().is_none() => self.abort(id).await?,
                    Ok(_) => {}
                    // The oracle knows whether it had begun.
                    Err(error) if error.code() == Some(Code::TxnNotFound) => break,
                    Err(error) => return Err(error),
                }
            }
            self.end(id);
        }
        Ok(())
    }

    async fn one(&self) -> Result<(), ClientError> {
        let id = TxnId::try_from(Uuid::now_v7()).expect("a UUIDv7");
        self.world.ledger().drawn.push((id, false));
        let plan = self.world.roll(9);
        self.world.note(format!("ledger {} plan {plan}", self.world.name(id)));
        if plan == 8 {
            return self.batch(id).await;
        }
        let begun = self.begin_request(if plan == 5 { 300 } else { 4000 });
        self.coordinator.begin(&self.client, id, &begun).await?;
        if self.world.roll(3) == 0 {
            self.coordinator.register(&self.client, id, &participant(1), self.epoch).await?;
        }
        match plan {
            0 => self.commit(id, Some(self.epoch)).await?,
            1 => {
                self.prepare(id, None).await?;
                self.commit(id, None).await?;
            }
            2 => self.abort(id).await?,
            3 => {
                self.prepare(id, None).await?;
                self.abort(id).await?;
            }
            4 => self.race(id).await?,
            5 => {
                // Its deadline is not far off.
                self.world.linger(600).await;
                self.commit(id, Some(self.epoch)).await?;
            }
            6 => {
                self.prepare(id, Some(300)).await?;
                self.world.linger(600).await;
                self.commit(id, None).await?;
            }
            _ => {}
        }
        Ok(())
    }

    fn begin_request(&self, timeout_ms: u64) -> BeginRequest {
        let names: Vec<_> = (0..=self.world.roll(2)).map(participant).collect();
        BeginRequest {
            epoch: Some(self.epoch),
            timeout_ms: serde_json::from_value(timeout_ms.into()).expect("a timeout"),
            require_prepare: false,
            participants: ParticipantSet::try_from(names).expect("few"),
            labels: Default::default(),
        }
    }

    async fn prepare(&self, id: TxnId, timeout_ms: Option<u64>) -> Result<(), ClientError> {
        let prepared_timeout_ms = timeout_ms.map(|ms| serde_json::from_value(ms.into()).expect("a timeout"));
        let request = PrepareRequest { epoch: Some(self.epoch), prepared_timeout_ms, ..Default::default() };
        is_ended(self.coordinator.prepare(&self.client, id, &request).await)
    }

    async fn commit(&self, id: TxnId, epoch: Option<Epoch>) -> Result<(), ClientError> {
        let request = CommitRequest { epoch, ..Default::default() };
        is_ended(self.coordinator.commit(&self.client, id, &request, None).await)
    }

    async fn abort(&self, id: TxnId) -> Result<(), ClientError> {
        let request = EpochRequest { epoch: Some(self.epoch) };
        is_ended(self.coordinator.abort(&self.client, id, &request, Some(Duration::from_millis(200))).await)
    }

    /// Two callers want the opposite: one decision, and the loser is told the truth.
    async fn race(&self, id: TxnId) -> Result<(), ClientError> {
        self.world.count("races");
        let (committed, aborted) = tokio::join!(self.commit(id, Some(self.epoch)), self.abort(id));
        committed.and(aborted)
    }

    async fn batch(&self, id: TxnId) -> Result<(), ClientError> {
        self.world.count("batch calls");
        let epoch = Some(self.epoch);
        let ops = [
            BatchOp::Begin(self.begin_request(4000)),
            BatchOp::Prepare(PrepareRequest { epoch, ..Default::default() }),
            BatchOp::Commit(CommitRequest { epoch, ..Default::default() }),
            BatchOp::Get,
        ];
        let items: Vec<_> = ops.into_iter().map(|op| BatchItem { txn_id: id, op }).collect();
        self.coordinator.batch(&self.client, &BatchRequest::new(&items, true)).await.map(drop)
    }
}

fn participant(number: u64) -> ParticipantName {
    format!("p-{number}").parse().expect("a name")
}

/// To be told the other outcome, or the state it is in, is an answer.
fn is_ended(answer: Result<Txn, ClientError>) -> Result<(), ClientError> {
    match answer {
        Err(error) => match error.code() {
            Some(Code::OutcomeCommitted | Code::OutcomeAborted) => Ok(()),
            _ => Err(error),
        },
        Ok(_) => Ok(()),
    }
}

/// The outcome that every participant of a transaction must have applied: what was told.
pub fn outcomes(world: &World) -> Vec<(TxnId, Option<Outcome>)> {
    let client: ClientName = CLIENT.parse().expect("a name");
    let drawn = world.ledger().drawn.clone();
    drawn.into_iter().map(|(id, _)| (id, world.answers().outcome(&(client.clone(), id)))).collect()
}
