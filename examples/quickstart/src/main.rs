//! One transaction, committed twice, and asked about once more after a restart: always the same answer.

use std::error::Error;

use ratified::{
    ClientName, CoordinatorClient, TxnId,
    protocol::{BeginRequest, CommitRequest, Incarnation, OpenRequest, Txn},
};
use ratified_coordinator::{Config, Coordinator};
use uuid::Uuid;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    println!("A coordinator keeps its store in {}.", dir.path().display());
    let coordinator = Coordinator::start(Config::local(dir.path())).await?;
    let client = CoordinatorClient::new(&coordinator.base_url())?;

    // The name stays the same for ever; each start of the job opens it and gets a greater epoch, which fences the last.
    let orders: ClientName = "orders".parse()?;
    let opening =
        OpenRequest { incarnation: Incarnation::new(Uuid::new_v4()), owner: None, create: true, generation: None };
    let epoch = client.open(&orders, &opening).await?.epoch;
    println!("The job {orders} opens, with epoch {epoch}.");

    // A job writes this id to its own disk before anybody else hears of it: whatever happens, it can ask again.
    let id = TxnId::try_from(Uuid::now_v7())?;
    let begin = BeginRequest { epoch: Some(epoch), ..BeginRequest::default() };
    tell("begin", &client.begin(&orders, id, &begin).await?);

    let commit = CommitRequest { epoch: Some(epoch), ..CommitRequest::default() };
    tell("commit", &client.commit(&orders, id, &commit, None).await?);
    tell("commit, repeated as after a lost answer", &client.commit(&orders, id, &commit, None).await?);

    coordinator.shutdown().await?;
    let coordinator = Coordinator::start(Config::local(dir.path())).await?;
    let client = CoordinatorClient::new(&coordinator.base_url())?;
    println!("The coordinator was restarted.");

    let answer = client.commit(&orders, id, &commit, None).await?;
    tell("commit, repeated after the restart", &answer);
    let preserved = client.preserved(&orders, id).await?;
    println!("  the preserver: {} is {}", preserved.txn_id, preserved.outcome);
    coordinator.shutdown().await?;
    if answer.replayed { Ok(()) } else { Err("the commit was carried out twice".into()) }
}

fn tell(call: &str, txn: &Txn) {
    println!("  {call}: {}, replayed: {}, told by the preserver: {}", txn.state, txn.replayed, txn.preserved);
}
