//! A producer in the same process learns what is durable, and sends the rest again after a restart.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

mod support;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use ratified::{
    Cause, ClientName, Point,
    job::{ChannelError, Job, channel},
};
use support::World;

fn client() -> ClientName {
    "import.channel".parse().unwrap()
}

fn keep(record: String, emit: &mut Vec<String>) -> Result<(), Cause> {
    if record != "nothing" {
        emit.push(record);
    }
    Ok(())
}

fn numbers(range: std::ops::Range<u64>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

#[tokio::test]
async fn a_position_is_durable_only_when_it_is_visible_and_acknowledged() {
    let world = World::start().await;
    world.sink.close_gate();
    let (mut sender, source) = channel::<String, u64>(10);
    let job = Job::new(client(), source, keep, world.job_builder().first_start(true)).checkpoint_records(1);
    let job = tokio::spawn(job.run());
    sender.send(1, "1".into()).await.unwrap();
    world.sink.until_called("commit 0").await;
    assert_eq!(*sender.durable().borrow(), None, "decided, and not visible yet");
    world.sink.open_gate();
    sender.until_durable(&1).await.unwrap();
    assert_eq!(world.sink.visible(), ["1"]);
    drop(sender);
    assert_eq!(job.await.unwrap().unwrap().position, Some(1));
}

#[tokio::test]
async fn after_a_crash_the_producer_sends_what_is_not_durable_and_nothing_is_lost_or_doubled() {
    let world = World::start().await;
    let mut attempts = 0;
    loop {
        attempts += 1;
        let (mut sender, source) = channel::<String, u64>(3);
        // Each attempt survives one commit and dies in the next, with its answer unheard.
        let survived = AtomicBool::new(false);
        let hook = move |point| {
            assert!(point != Point::Decided || !survived.swap(true, Ordering::SeqCst), "crash here");
        };
        let builder = world.job_builder().first_start(true).on_point(hook);
        let job = tokio::spawn(Job::new(client(), source, keep, builder).checkpoint_records(4).batch_records(2).run());
        let after = sender.resume_after().await.unwrap();
        let durable = sender.durable();
        let mut all_sent = true;
        for n in after.map_or(0, |last| last + 1)..20 {
            if let Err(error) = sender.send(n, n.to_string()).await {
                assert_eq!(error, ChannelError::Ended);
                all_sent = false;
                break;
            }
        }
        drop(sender);
        let is_done = job.await.is_ok_and(|job| job.is_ok()) && all_sent;
        // What was called durable is there.
        let visible = world.sink.visible();
        assert_eq!(visible, numbers(0..visible.len() as u64), "attempt {attempts}");
        assert!(durable.borrow().is_none_or(|position| position < visible.len() as u64));
        assert!(*durable.borrow() >= after);
        if is_done {
            break;
        }
        assert!(attempts < 20);
    }
    assert!(attempts > 2, "{attempts}");
    assert_eq!(world.sink.visible(), numbers(0..20));
}

#[tokio::test]
async fn positions_must_ascend_and_begin_behind_the_resumed_one() {
    let world = World::start().await;
    let mut resumed = Vec::new();
    for positions in [[5, 5, 4], [5, 9, 9]] {
        let (mut sender, source) = channel::<String, u64>(10);
        let job = tokio::spawn(Job::new(client(), source, keep, world.job_builder().first_start(true)).run());
        resumed.push(sender.resume_after().await.unwrap());
        for position in positions {
            let sent = sender.send(position, position.to_string()).await;
            resumed.push(sent.is_ok().then_some(position));
            assert!(matches!(sent, Ok(()) | Err(ChannelError::OutOfOrder)), "{sent:?}");
        }
        drop(sender);
        job.await.unwrap().unwrap();
    }
    assert_eq!(resumed, [None, Some(5), None, None, Some(5), None, Some(9), None]);
    assert_eq!(world.sink.visible(), ["5", "9"]);
}

#[tokio::test]
async fn a_full_channel_holds_the_producer_back() {
    let world = World::start().await;
    world.sink.close_gate();
    let (mut sender, source) = channel::<String, u64>(2);
    let builder = world.job_builder().first_start(true).max_pending(1);
    let job = Job::new(client(), source, keep, builder).checkpoint_records(1).batch_records(1);
    let job = tokio::spawn(job.run());
    // One is being committed, one waits for it in the job, two in the channel; the next one has no room.
    let sent = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = sent.clone();
    let producer = tokio::spawn(async move {
        for n in 0..10 {
            sender.send(n, n.to_string()).await.unwrap();
            count.store(n + 1, Ordering::SeqCst);
        }
    });
    while sent.load(Ordering::SeqCst) < 4 {
        tokio::task::yield_now().await;
    }
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(sent.load(Ordering::SeqCst) <= 4, "{sent:?}");
    world.sink.open_gate();
    producer.await.unwrap();
    job.await.unwrap().unwrap();
    assert_eq!(world.sink.visible(), numbers(0..10));
}

#[tokio::test]
async fn what_writes_nothing_becomes_durable_by_itself() {
    let world = World::start().await;
    let (mut sender, source) = channel::<String, u64>(10);
    let job =
        Job::new(client(), source, keep, world.job_builder().first_start(true)).checkpoint_records(1).batch_records(1);
    let job = tokio::spawn(job.run());
    sender.send(1, "nothing".into()).await.unwrap();
    sender.until_durable(&1).await.unwrap();
    sender.send(2, "2".into()).await.unwrap();
    sender.send(3, "nothing".into()).await.unwrap();
    sender.until_durable(&3).await.unwrap();
    assert_eq!((world.sink.visible(), world.sink.calls().len()), (vec!["2".to_owned()], 4), "begin to commit, of one");
    let mut watched = sender.durable();
    drop(sender);
    let report = job.await.unwrap().unwrap();
    assert_eq!((report.position, report.records_in, report.commits), (Some(3), 3, 1));
    assert_eq!(*watched.borrow_and_update(), Some(3));
    // The job is gone: nothing more becomes durable.
    assert!(watched.changed().await.is_err());
}

#[tokio::test]
async fn a_job_that_cannot_open_says_so_to_its_producer() {
    let world = World::start().await;
    let (mut sender, source) = channel::<String, u64>(10);
    let job = Job::new(client(), source, keep, world.job_builder());
    assert!(job.run().await.is_err(), "it was never started, and may not be made");
    assert_eq!(sender.resume_after().await, Err(ChannelError::Ended));
    assert_eq!(sender.send(1, "1".into()).await, Err(ChannelError::Ended));
    assert_eq!(sender.until_durable(&1).await, Err(ChannelError::Ended));
}
