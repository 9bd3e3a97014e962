//! Whole jobs: a replayable source, a transformation that rejects, a sink.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

mod support;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use ratified::{
    Cause, ClientName,
    job::{Ended, Job, JobError, Read, Source},
};
use support::{
    World, client_at,
    proxy::{EVERY_MISCHIEF, Proxy},
    sink::TestSink,
};

const RECORDS: u64 = 100;

/// The numbers below [`RECORDS`], and a note of everything it was told.
struct Numbers {
    next: u64,
    end: u64,
    acknowledged: Arc<Mutex<Vec<u64>>>,
    sink: TestSink,
    is_visible: fn(&[String], u64) -> bool,
}

impl Numbers {
    fn new(world: &World) -> Self {
        Self {
            next: 0,
            end: RECORDS,
            acknowledged: Arc::default(),
            sink: world.sink.clone(),
            is_visible: |visible, n| visible.contains(&transformed(n)),
        }
    }
}

#[async_trait]
impl Source for Numbers {
    type Record = u64;
    type Position = u64;

    async fn seek(&mut self, position: Option<&u64>) -> Result<(), Cause> {
        self.next = position.copied().unwrap_or(0);
        Ok(())
    }

    async fn read(&mut self, max_records: usize) -> Result<Read<u64>, Cause> {
        let end = self.end.min(self.next + max_records as u64);
        if end == self.next {
            return Ok(if self.end == RECORDS { Read::End } else { Read::Idle });
        }
        let records = (self.next..end).collect();
        self.next = end;
        Ok(Read::Records(records))
    }

    fn position(&self) -> u64 {
        self.next
    }

    async fn acknowledge(&mut self, position: &u64) -> Result<(), Cause> {
        // A source is told only of what a reader of the sink can see.
        let visible = self.sink.visible();
        for number in 0..*position {
            assert!((self.is_visible)(&visible, number), "{number} of {position}");
        }
        self.acknowledged.lock().unwrap().push(*position);
        Ok(())
    }
}

fn transformed(number: u64) -> String {
    if number.is_multiple_of(10) { format!("rejected {number}") } else { format!("taken {number}") }
}

fn transform(number: u64, emit: &mut Vec<String>) -> Result<(), Cause> {
    emit.push(transformed(number));
    Ok(())
}

fn client() -> ClientName {
    "import.numbers".parse().unwrap()
}

fn expected() -> Vec<String> {
    (0..RECORDS).map(transformed).collect()
}

#[tokio::test]
async fn a_job_runs_to_the_end_of_its_input_and_says_what_it_did() {
    let world = World::start().await;
    let source = Numbers::new(&world);
    let acknowledged = source.acknowledged.clone();
    let job = Job::new(client(), source, transform, world.job_builder().first_start(true));
    let report = job.batch_records(10).checkpoint_records(30).run().await.unwrap();
    assert_eq!(world.sink.visible(), expected());
    assert_eq!((report.records_in, report.records_out, report.commits, report.replays), (100, 100, 4, 0));
    assert_eq!((report.resumed_from, report.position, report.ended), (None, 100, Ended::EndOfInput));
    assert_eq!(acknowledged.lock().unwrap().last(), Some(&100));
    assert_eq!((world.sink.staged(), world.unfinished().await), (0, vec![]));
}

#[tokio::test]
async fn running_a_finished_job_again_changes_nothing() {
    let world = World::start().await;
    for round in 0..3 {
        let job = Job::new(client(), Numbers::new(&world), transform, world.job_builder().first_start(true));
        let report = job.run().await.unwrap();
        assert_eq!(report.resumed_from, (round > 0).then_some(100), "{round}");
        assert_eq!(report.records_in, if round > 0 { 0 } else { 100 }, "{round}");
        assert_eq!(world.sink.visible(), expected(), "{round}");
    }
}

#[tokio::test]
async fn a_job_that_crashes_at_every_point_in_turn_still_writes_everything_once() {
    let world = World::start().await;
    let mut crashes = 0;
    loop {
        // Each attempt survives one point more than the last one.
        let left = AtomicUsize::new(crashes + 1);
        let builder = world.job_builder().first_start(true).on_point(move |_| {
            assert!(left.fetch_sub(1, Ordering::Relaxed) > 1, "crash here");
        });
        let job = Job::new(client(), Numbers::new(&world), transform, builder).batch_records(7).checkpoint_records(20);
        match tokio::spawn(job.run()).await {
            Ok(Ok(report)) => {
                assert_eq!((report.position, report.ended), (100, Ended::EndOfInput));
                break;
            }
            Ok(Err(_)) | Err(_) => crashes += 1,
        }
        let visible = world.sink.visible();
        assert_eq!(visible, expected()[..visible.len()], "after {crashes} crashes");
    }
    assert!(crashes > 5, "{crashes}");
    assert_eq!(world.sink.visible(), expected());
    assert_eq!((world.sink.staged(), world.unfinished().await), (0, vec![]));
}

#[tokio::test]
async fn a_stopped_job_commits_what_it_has_read_and_goes_on_from_there() {
    let world = World::start().await;
    let mut source = Numbers::new(&world);
    source.end = 55;
    let job = Job::new(client(), source, transform, world.job_builder().first_start(true));
    let stop = job.stop_handle();
    let job = tokio::spawn(job.batch_records(10).run());
    // Batches of one record: the last of the 55 is in the sink when it has been asked to write it.
    while world.sink.calls().iter().filter(|call| call.starts_with("write")).count() < 55 {
        assert!(!job.is_finished());
        tokio::task::yield_now().await;
    }
    stop.stop();
    let report = job.await.unwrap().unwrap();
    assert_eq!((report.ended, report.position, report.records_in), (Ended::Stopped, 55, 55));
    assert_eq!(world.sink.visible(), expected()[..55]);
    let job = Job::new(client(), Numbers::new(&world), transform, world.job_builder());
    assert_eq!(job.run().await.unwrap().resumed_from, Some(55));
    assert_eq!(world.sink.visible(), expected());
}

#[tokio::test]
async fn a_failed_transformation_ends_the_job_and_loses_nothing() {
    let world = World::start().await;
    let failing = |number: u64, emit: &mut Vec<String>| {
        if number == 42 { Err(Cause::new("cannot take 42")) } else { transform(number, emit) }
    };
    let job = Job::new(client(), Numbers::new(&world), failing, world.job_builder().first_start(true));
    let failed = job.batch_records(5).checkpoint_records(10).run().await.unwrap_err();
    assert!(matches!(failed, JobError::Transform(_)), "{failed}");
    assert_eq!(world.sink.visible(), expected()[..40]);
    assert_eq!(world.sink.staged(), 0);
    let job = Job::new(client(), Numbers::new(&world), transform, world.job_builder());
    assert_eq!(job.run().await.unwrap().resumed_from, Some(40));
    assert_eq!(world.sink.visible(), expected());
}

#[tokio::test]
async fn a_transformation_may_drop_and_multiply_records() {
    let world = World::start().await;
    let picky = |number: u64, emit: &mut Vec<String>| {
        for copy in 0..number % 3 {
            emit.push(format!("{number}.{copy}"));
        }
        Ok(())
    };
    let mut source = Numbers::new(&world);
    source.is_visible = |visible, n| n % 3 == 0 || visible.contains(&format!("{n}.0"));
    let job = Job::new(client(), source, picky, world.job_builder().first_start(true));
    let report = job.batch_records(1).checkpoint_records(1).run().await.unwrap();
    assert_eq!((report.records_in, report.records_out, report.commits), (100, 99, 66));
    assert_eq!(world.sink.visible().len(), 99);
}

#[tokio::test]
async fn a_job_lives_through_a_bad_network_and_a_restarted_coordinator() {
    let mut world = World::start().await;
    let proxy = Proxy::start(world.addr()).await;
    for mischief in EVERY_MISCHIEF {
        for target in ["PUT ", "/commit ", "/ack "] {
            proxy.plan(target, mischief, 2);
        }
    }
    let builder = world.job_builder_at(client_at(proxy.addr)).first_start(true);
    let job = Job::new(client(), Numbers::new(&world), transform, builder);
    let job = tokio::spawn(job.batch_records(1).checkpoint_records(2).run());
    for round in 1..=3 {
        while world.sink.visible().len() < 20 * round {
            assert!(!job.is_finished());
            tokio::task::yield_now().await;
        }
        world.stop_coordinator().await;
        world.start_coordinator().await;
    }
    let report = job.await.unwrap().unwrap();
    assert_eq!((report.records_in, report.commits), (100, 50));
    assert_eq!(world.sink.visible(), expected());
    assert!(proxy.is_spent());
}

#[tokio::test]
async fn a_record_that_the_sink_rejects_is_found_and_goes_where_the_job_sends_it() {
    for call in ["write", "pre_commit"] {
        let world = World::start().await;
        world.sink.reject(call, &transformed(42));
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = told.clone();
        let mut source = Numbers::new(&world);
        source.is_visible =
            |visible, n| visible.contains(&transformed(n)) || visible.contains(&format!("rejected {n}"));
        let job = Job::new(client(), source, transform, world.job_builder().first_start(true).batch_records(4));
        let job = job.batch_records(10).checkpoint_records(20).on_rejected(move |number, why, emit| {
            heard.lock().unwrap().push(format!("{number} before {}: {}", why.behind, why.error));
            emit.push(format!("rejected {number}"));
            Ok(())
        });
        let report = job.run().await.unwrap();
        let mut wanted = expected();
        wanted[42] = "rejected 42".to_owned();
        assert_eq!(world.sink.visible(), wanted, "{call}");
        assert_eq!((report.records_in, report.records_out, report.rejected), (100, 100, 1), "{call}");
        assert_eq!(*told.lock().unwrap(), [format!("42 before 43: sink.{call}: the sink refused: too long")]);
        assert_eq!((world.sink.staged(), world.unfinished().await), (0, vec![]), "{call}");
    }
}

#[tokio::test]
async fn without_a_recourse_the_job_ends_and_says_which_record_the_sink_rejects() {
    let world = World::start().await;
    world.sink.reject("write", &transformed(42));
    let job = Job::new(client(), Numbers::new(&world), transform, world.job_builder().first_start(true));
    let failed = job.checkpoint_records(20).run().await.unwrap_err();
    assert!(matches!(failed, JobError::Rejected(_)), "{failed}");
    assert_eq!(
        failed.to_string(),
        "the sink rejects the record before position 43: sink.write: the sink refused: too long"
    );
    assert_eq!(world.sink.visible(), expected()[..42], "all before it is committed");
    assert_eq!(world.sink.staged(), 0);
}

#[tokio::test]
async fn what_stands_for_a_rejected_record_must_be_taken() {
    let world = World::start().await;
    world.sink.reject("write", &transformed(42));
    let job = Job::new(client(), Numbers::new(&world), transform, world.job_builder().first_start(true));
    let failed = job.on_rejected(|number, _, emit| transform(number, emit)).run().await.unwrap_err();
    assert!(matches!(&failed, JobError::Rejected(why) if why.behind == "43"), "{failed}");
}

#[tokio::test]
async fn a_sink_that_is_away_does_not_hold_up_a_stop_beyond_its_deadline() {
    let world = World::start().await;
    world.sink.close_gate();
    let builder = world.job_builder().first_start(true).max_pending(1).close_deadline(Duration::from_millis(50));
    let job = Job::new(client(), Numbers::new(&world), transform, builder).batch_records(10).checkpoint_records(20);
    let stop = job.stop_handle();
    let job = tokio::spawn(job.run());
    world.sink.until_called("commit 0").await;
    stop.stop();
    let failed = job.await.unwrap().unwrap_err();
    assert!(matches!(failed, JobError::StopIncomplete { unfinished: 1, .. }), "{failed}");
    world.sink.open_gate();
    let job = Job::new(client(), Numbers::new(&world), transform, world.job_builder());
    assert_eq!(job.run().await.unwrap().resumed_from, Some(20));
    assert_eq!(world.sink.visible(), expected());
}
