//! Calls of one process that share requests, against a real coordinator: each is answered as if it were alone.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

mod support;

use std::time::Duration;

use ratified::{
    ClientError, ClientName, ClientOptions, Code, CoordinatorClient, Outcome, TxnId, TxnState,
    protocol::{
        AbortRequest, BeginRequest, CommitRequest, Incarnation, OpenRequest, ParticipantSet, Payload, PrepareRequest,
    },
};
use support::World;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};
use uuid::Uuid;

const CALLERS: u64 = 64;

fn caller(n: u64) -> (ClientName, TxnId) {
    let id = Uuid::from_u128(0x0190_f2c4_7a61_7c3e_9d0a_0000_0000_0000 | u128::from(n));
    (format!("caller.{n}").parse().unwrap(), id.to_string().parse().unwrap())
}

async fn open(client: &CoordinatorClient, name: &ClientName) -> ratified::Epoch {
    let request =
        OpenRequest { incarnation: Incarnation::new(Uuid::new_v4()), owner: None, create: true, generation: None };
    client.open(name, &request).await.unwrap().epoch
}

/// Begins, prepares and ends one transaction; every third one is aborted, every fourth has a participant.
async fn one(client: CoordinatorClient, n: u64) -> (u64, TxnState) {
    let (name, id) = caller(n);
    let epoch = Some(open(&client, &name).await);
    let participant = "p".parse().unwrap();
    let participants = if n.is_multiple_of(4) {
        ParticipantSet::try_from(vec![participant]).unwrap()
    } else {
        ParticipantSet::default()
    };
    client.begin(&name, id, &BeginRequest { epoch, participants, ..Default::default() }).await.unwrap();
    let payload = Some(Payload::new(vec![7; 40_000]));
    let request = PrepareRequest { epoch, payload, ..Default::default() };
    let told = client.prepare(&name, id, &request).await.unwrap();
    assert_eq!(told.payload, request.payload, "what an answer to many leaves out is asked for");
    let ended = if n.is_multiple_of(3) {
        client.abort(&name, id, &AbortRequest { epoch }, None).await.unwrap()
    } else {
        client.commit(&name, id, &CommitRequest { epoch, ..Default::default() }, None).await.unwrap()
    };
    let state = ended.state.known().unwrap();
    if n.is_multiple_of(4) {
        let outcome = state.outcome().unwrap();
        let acked = client.ack(&name, id, &"p".parse().unwrap(), outcome).await.unwrap();
        assert_eq!(acked.state.known().unwrap().outcome(), Some(outcome));
    }
    (n, state)
}

async fn requests(world: &World) -> Vec<(String, u64)> {
    let mut socket = TcpStream::connect(world.addr()).await.unwrap();
    let head = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", world.addr());
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    let calls = text.lines().filter(|line| line.starts_with("ratified_http_requests_total{"));
    calls.filter_map(|line| Some((line.to_owned(), line.rsplit(' ').next()?.parse().ok()?))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_of_one_process_share_requests_and_each_has_its_own_outcome() {
    let world = World::start().await;
    // Clients of their own: what is shared is the process, not the client.
    let clients: Vec<_> = (0..CALLERS).map(|_| world.client()).collect();
    let mut callers: JoinSet<_> = clients.into_iter().zip(0..).map(|(client, n)| one(client, n)).collect();
    let alone =
        CoordinatorClient::with_options(&format!("http://{}", world.addr()), ClientOptions::default().gather(false))
            .unwrap();
    while let Some(ended) = callers.join_next().await {
        let (n, state) = ended.unwrap();
        let expected = if n.is_multiple_of(3) { Outcome::Aborted } else { Outcome::Committed };
        assert_eq!(state.outcome(), Some(expected), "{n}");
        let (name, id) = caller(n);
        let known = alone.get(&name, id, None).await.unwrap().state.known();
        let terminal = if n.is_multiple_of(3) { TxnState::Aborted } else { TxnState::Committed };
        assert_eq!(known, Some(terminal), "{n}");
    }
    let all = requests(&world).await;
    let shared: u64 = all.iter().filter(|(line, _)| line.contains(r#"route="/v1/batch""#)).map(|(_, n)| n).sum();
    let single: u64 = all.iter().filter(|(line, _)| line.contains("/txns/{txnId}/")).map(|(_, n)| n).sum();
    assert!(shared > 0, "{all:?}");
    assert!(single + shared < 3 * CALLERS, "{single} alone and {shared} shared: {all:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_fenced_among_others_is_the_only_one_that_is() {
    let world = World::start().await;
    let client = world.client();
    let mut epochs = Vec::new();
    for n in 0..CALLERS {
        epochs.push(open(&client, &caller(n).0).await);
    }
    open(&client, &caller(5).0).await;
    let mut callers = JoinSet::new();
    for n in 0..CALLERS {
        let (client, epoch, (name, id)) = (client.clone(), Some(epochs[n as usize]), caller(n));
        callers.spawn(async move { (n, client.begin(&name, id, &BeginRequest { epoch, ..Default::default() }).await) });
    }
    while let Some(ended) = callers.join_next().await {
        match ended.unwrap() {
            (5, Err(error)) => assert_eq!(error.code(), Some(Code::Fenced)),
            (5, Ok(txn)) => panic!("{txn:?}"),
            (n, begun) => assert_eq!(begun.unwrap().client_name, caller(n).0),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_share_requests_outlive_a_restart_of_the_coordinator() {
    let mut world = World::start().await;
    let client = world.client();
    let mut callers = JoinSet::new();
    for n in 0..CALLERS {
        callers.spawn(one(client.clone(), n));
    }
    let mut ended = vec![callers.join_next().await.unwrap().unwrap()];
    world.stop_coordinator().await;
    world.start_coordinator().await;
    while let Some(one) = callers.join_next().await {
        ended.push(one.unwrap());
    }
    assert_eq!(ended.len() as u64, CALLERS);
    for (n, state) in ended {
        let expected = if n.is_multiple_of(3) { Outcome::Aborted } else { Outcome::Committed };
        assert_eq!(state.outcome(), Some(expected), "{n}");
    }
}

#[tokio::test]
async fn a_runtime_that_ends_leaves_nobody_of_another_one_waiting() {
    let world = World::start().await;
    let client = world.client();
    let other = client.clone();
    let ended = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (name, id) = caller(1);
            let call = async move { other.get(&name, id, None).await };
            drop(tokio::spawn(call));
            tokio::task::yield_now().await;
        });
    });
    ended.join().unwrap();
    let (name, id) = caller(2);
    let calls = [client.get(&name, id, None), client.get(&name, id, None), client.get(&name, id, None)];
    let told = tokio::time::timeout(Duration::from_secs(30), futures_util::future::join_all(calls)).await.unwrap();
    for told in told {
        assert!(matches!(told, Err(ClientError::Refused(_))), "{told:?}");
    }
}
