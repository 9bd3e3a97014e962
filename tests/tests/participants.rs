//! Two resources in processes of their own, one decision: one of them is killed at every step, the coordinator too, and
//! both end up with the same outcome.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here is a failed test")]

use std::{fs::File, path::Path, process::Stdio, time::Duration};

use ratified::{
    ClientName, ClientOptions, CoordinatorClient, Epoch, Outcome, RetryDelays, TxnId, TxnState,
    protocol::{BeginRequest, CommitRequest, EpochRequest, Incarnation, OpenRequest, ParticipantName},
};
use ratified_tests::{
    config::Config,
    pipeline::check_exactly_once,
    poll,
    process::Ratifyd,
    proxy::{Proxy, pass},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};
use uuid::Uuid;

const ROWS: u64 = 10;

/// A coordinator, a stable address in front of it, and an owner of transactions.
struct Site {
    ratifyd: Ratifyd,
    proxy: Proxy,
    dir: TempDir,
    owner: CoordinatorClient,
    client: ClientName,
    epoch: Epoch,
}

impl Site {
    async fn new() -> Self {
        let ratifyd = Ratifyd::start(Config::new()).await;
        let proxy = Proxy::start(ratifyd.address(), pass()).await;
        let delays = RetryDelays { first: Duration::from_millis(2), longest: Duration::from_millis(50) };
        let owner = CoordinatorClient::with_options(&proxy.url(), ClientOptions::default().delays(delays)).unwrap();
        let mut site = Self {
            ratifyd,
            proxy,
            dir: tempfile::tempdir().unwrap(),
            owner,
            client: "owner".parse().unwrap(),
            epoch: Epoch::FIRST,
        };
        site.open_owner().await;
        site
    }

    async fn open_owner(&mut self) {
        let opening =
            OpenRequest { incarnation: Incarnation::new(Uuid::new_v4()), owner: None, create: true, generation: None };
        self.epoch = self.owner.open(&self.client, &opening).await.unwrap().epoch;
    }

    async fn begin(&self) -> TxnId {
        let id = TxnId::try_from(Uuid::now_v7()).unwrap();
        let request = BeginRequest { epoch: Some(self.epoch), ..BeginRequest::default() };
        self.owner.begin(&self.client, id, &request).await.unwrap();
        id
    }

    async fn decide(&self, id: TxnId, outcome: Outcome) {
        let epoch = Some(self.epoch);
        match outcome {
            Outcome::Committed => {
                let request = CommitRequest { epoch, ..CommitRequest::default() };
                drop(self.owner.commit(&self.client, id, &request, None).await.unwrap());
            }
            Outcome::Aborted => {
                drop(self.owner.abort(&self.client, id, &EpochRequest { epoch }, None).await.unwrap());
            }
        }
    }

    async fn until_ended(&self, id: TxnId) -> TxnState {
        let wait = Some(Duration::from_secs(20));
        self.owner.get(&self.client, id, wait).await.unwrap().state.known().unwrap()
    }

    async fn start(&self, scene: &str, name: &str, options: &[&str]) -> Member {
        let dir = self.dir.path().join(scene).join(name);
        Member::start(&self.proxy.url(), &dir, &format!("{scene}.{name}"), options).await
    }
}

/// A participant's process.
struct Member {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    dir: std::path::PathBuf,
}

impl Member {
    async fn start(url: &str, dir: &Path, name: &str, options: &[&str]) -> Self {
        std::fs::create_dir_all(dir).unwrap();
        let log = File::options().create(true).append(true).open(dir.join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_job"));
        command.args(["participant", url]).arg(dir).args([name, "0", "0"]).args(options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines, dir: dir.to_owned() }
    }

    /// What it says next; none once it has ended.
    async fn hear(&mut self) -> Option<String> {
        timeout(poll::PATIENCE, self.lines.next_line()).await.unwrap().unwrap()
    }

    async fn expect(&mut self, line: &str) {
        assert_eq!(self.hear().await.as_deref(), Some(line), "{}", self.log());
    }

    async fn tell(&mut self, line: &str) {
        // It may be dead already.
        let _ = self.child.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).await;
    }

    async fn join(&mut self, site: &Site, id: TxnId) {
        self.tell(&format!("join {} {id} {} 0 {ROWS}", site.client, site.epoch)).await;
    }

    async fn expect_end(&mut self, killed: bool) {
        assert_eq!(self.hear().await, None);
        let status = self.child.wait().await.unwrap();
        assert_eq!(status.code().is_none(), killed, "{status}: {}", self.log());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap()
    }

    fn check(&self, outcome: Outcome, what: &str) {
        let rows = if outcome == Outcome::Committed { ROWS } else { 0 };
        check_exactly_once(&self.dir.join("out"), rows).unwrap_or_else(|why| panic!("{what}: {why}"));
    }
}

/// What is killed between the death of the participant and its next life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    Nothing,
    CoordinatorCrashes,
}

/// The first participant dies at a place; the owner decides as it must; the participant comes back.
async fn die_at(site: &mut Site, place: &str, wanted: Outcome, meanwhile: Meanwhile) {
    let scene = format!("{place}-{wanted:?}-{meanwhile:?}");
    let mut second = site.start(&scene, "second", &[]).await;
    second.expect("open 0 0").await;
    let mut first = site.start(&scene, "first", &["--die", &format!("{place}:0")]).await;
    first.expect("open 0 0").await;
    let id = site.begin().await;
    first.join(site, id).await;
    second.join(site, id).await;
    second.expect(&format!("flushed {id}")).await;
    // An owner that has not heard of everybody gives the transaction up.
    let has_flushed = first.hear().await == Some(format!("flushed {id}"));
    let outcome = if has_flushed { wanted } else { Outcome::Aborted };
    if meanwhile == Meanwhile::CoordinatorCrashes && !has_flushed {
        site.ratifyd.crash().await;
    }
    site.decide(id, outcome).await;
    first.expect_end(true).await;
    if meanwhile == Meanwhile::CoordinatorCrashes {
        site.ratifyd.crash().await;
    }
    let mut first = site.start(&scene, "first", &[]).await;
    assert!(first.hear().await.is_some_and(|line| line.starts_with("open ")), "{scene}: {}", first.log());
    let expected = if outcome == Outcome::Committed { TxnState::Committed } else { TxnState::Aborted };
    assert_eq!(site.until_ended(id).await, expected, "{scene}: {}", first.log());
    for member in [&mut first, &mut second] {
        member.tell("idle").await;
        member.expect("idle").await;
        member.check(outcome, &scene);
    }
}

const BEFORE: [&str; 5] = ["noted", "joined", "write", "sync_file", "flushed"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_participant_killed_before_it_has_flushed_makes_everybody_abort() {
    let mut site = Site::new().await;
    for meanwhile in [Meanwhile::Nothing, Meanwhile::CoordinatorCrashes] {
        for place in BEFORE {
            die_at(&mut site, place, Outcome::Committed, meanwhile).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_participant_killed_while_it_applies_a_commit_applies_it_once_when_it_is_back() {
    let mut site = Site::new().await;
    for meanwhile in [Meanwhile::Nothing, Meanwhile::CoordinatorCrashes] {
        for place in ["decided", "rename_0", "rename_1", "applied", "acknowledged"] {
            die_at(&mut site, place, Outcome::Committed, meanwhile).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_participant_killed_while_it_applies_an_abort_leaves_nothing_when_it_is_back() {
    let mut site = Site::new().await;
    for meanwhile in [Meanwhile::Nothing, Meanwhile::CoordinatorCrashes] {
        for place in ["decided", "remove", "applied", "acknowledged"] {
            die_at(&mut site, place, Outcome::Aborted, meanwhile).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_participant_lives_through_restarts_of_the_coordinator() {
    let mut site = Site::new().await;
    let mut member = site.start("waits", "p", &[]).await;
    member.expect("open 0 0").await;
    let id = site.begin().await;
    member.join(&site, id).await;
    member.expect(&format!("flushed {id}")).await;
    for _ in 0..2 {
        site.ratifyd.crash().await;
    }
    site.decide(id, Outcome::Committed).await;
    assert_eq!(site.until_ended(id).await, TxnState::Committed);
    member.tell("idle").await;
    member.expect("idle").await;
    member.check(Outcome::Committed, "after two restarts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_of_the_owner_ends_what_it_left_and_the_old_epoch_cannot_join() {
    let mut site = Site::new().await;
    let mut member = site.start("successor", "p", &[]).await;
    member.expect("open 0 0").await;
    let id = site.begin().await;
    member.join(&site, id).await;
    member.expect(&format!("flushed {id}")).await;
    let old = site.epoch;
    site.open_owner().await;
    assert_eq!(site.until_ended(id).await, TxnState::Aborted);
    let next = site.begin().await;
    member.tell(&format!("join {} {next} {old} 0 {ROWS}", site.client)).await;
    let refused = member.hear().await.unwrap();
    assert!(refused.starts_with("refused owner is owned by somebody else"), "{refused}");
    member.join(&site, next).await;
    member.expect(&format!("flushed {next}")).await;
    site.decide(next, Outcome::Committed).await;
    member.tell("idle").await;
    member.expect("idle").await;
    member.check(Outcome::Committed, "after the old epoch was refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_can_be_joined_after_the_decision() {
    let site = Site::new().await;
    let mut member = site.start("late", "p", &[]).await;
    member.expect("open 0 0").await;
    let id = site.begin().await;
    site.decide(id, Outcome::Committed).await;
    member.join(&site, id).await;
    let refused = member.hear().await.unwrap();
    assert!(refused.starts_with(&format!("refused {id} of owner can no longer be joined")), "{refused}");
    member.tell("idle").await;
    member.expect("idle").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retired_participant_stops_loudly_and_may_join_nothing() {
    let site = Site::new().await;
    let mut member = site.start("retired", "p", &[]).await;
    member.expect("open 0 0").await;
    let id = site.begin().await;
    member.join(&site, id).await;
    member.expect(&format!("flushed {id}")).await;
    let name: ParticipantName = "retired.p".parse().unwrap();
    site.owner.retire(&name, "test".to_owned().try_into().unwrap()).await.unwrap();
    member.expect_end(false).await;
    let why = "job: retired.p is retired: its transactions go on without it; an operator must reinstate it";
    assert!(member.log().contains(why), "{}", member.log());
    // What was decided without it holds for it, too, once it is back.
    site.decide(id, Outcome::Committed).await;
    let mut member = site.start("retired", "p", &[]).await;
    member.expect("open 1 0").await;
    member.check(Outcome::Committed, "decided without it");
    let next = site.begin().await;
    member.join(&site, next).await;
    assert_eq!(member.hear().await.unwrap(), format!("refused {}", why.strip_prefix("job: ").unwrap()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_what_a_participant_has_lost_stops_it_with_the_name_of_the_transaction() {
    let site = Site::new().await;
    let mut member = site.start("lost", "p", &[]).await;
    member.expect("open 0 0").await;
    let id = site.begin().await;
    member.join(&site, id).await;
    member.expect(&format!("flushed {id}")).await;
    member.child.kill().await.unwrap();
    std::fs::remove_dir_all(member.dir.join("pending")).unwrap();
    site.decide(id, Outcome::Committed).await;
    let mut member = site.start("lost", "p", &[]).await;
    member.expect("open 0 0").await;
    member.expect_end(false).await;
    let why = format!("{id} of owner is committed, and lost.p had nothing flushed: its part is lost");
    assert!(member.log().contains(&why), "{}", member.log());
    let told = site.owner.get(&site.client, id, None).await.unwrap();
    assert_eq!(told.state, TxnState::Committing, "nobody says that it was applied");
}
