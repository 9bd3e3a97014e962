//! A position is read back before anything is decided with it: one that would not be the same is an error of the first
//! commit, and what is unusual but exact works.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

mod support;

use std::{collections::BTreeMap, fmt};

use async_trait::async_trait;
use ratified::{
    Cause,
    job::{Job, JobError, PositionError, Read, Source, channel},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use support::World;

/// Three records, each with a position of its own.
struct Three<P> {
    positions: [P; 4],
    next: usize,
}

impl<P> Three<P> {
    fn new(positions: [P; 4]) -> Self {
        Self { positions, next: 0 }
    }
}

#[async_trait]
impl<P: Serialize + DeserializeOwned + PartialEq + fmt::Debug + Clone + Send + Sync + 'static> Source for Three<P> {
    type Record = usize;
    type Position = P;

    async fn seek(&mut self, position: Option<&P>) -> Result<(), Cause> {
        let at = position.map(|position| self.positions.iter().position(|at| at == position));
        self.next = at.map_or(Ok(0), |at| at.ok_or_else(|| Cause::new("it was never here")))?;
        Ok(())
    }

    async fn read(&mut self, _: usize) -> Result<Read<usize>, Cause> {
        if self.next == 3 {
            return Ok(Read::End);
        }
        self.next += 1;
        Ok(Read::Records(vec![self.next]))
    }

    fn position(&self) -> P {
        self.positions[self.next].clone()
    }
}

/// Runs a job that ends at its third record, and then once more; gives what is visible.
async fn interrupted<P>(positions: [P; 4]) -> Result<Vec<String>, JobError>
where
    P: Serialize + DeserializeOwned + PartialEq + fmt::Debug + Clone + Send + Sync + 'static,
{
    let world = World::start().await;
    for round in 0..2 {
        let transform = move |record: usize, emit: &mut Vec<String>| {
            if round == 0 && record == 3 {
                return Err(Cause::new("made up"));
            }
            emit.push(record.to_string());
            Ok(())
        };
        let builder = world.job_builder().first_start(round == 0);
        let job = Job::new("p".parse().unwrap(), Three::new(positions.clone()), transform, builder);
        match job.checkpoint_records(1).batch_records(1).run().await {
            Err(JobError::Transform(_)) => assert_eq!(round, 0),
            Err(error) => {
                assert_eq!((world.sink.visible(), world.sink.staged(), world.unfinished().await), (vec![], 0, vec![]));
                return Err(error);
            }
            Ok(report) => assert_eq!((report.resumed_from, report.records_in), (Some(positions[2].clone()), 1)),
        }
    }
    Ok(world.sink.visible())
}

#[tokio::test]
async fn a_position_that_is_unusual_and_exact_is_gone_on_from() {
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Watermarked {
        watermark: f64,
        offsets: BTreeMap<(u8, char), i128>,
    }
    let at = |watermark, offset| Watermarked { watermark, offsets: BTreeMap::from([((1, '\n'), offset)]) };
    let infinite = [at(0.0, 0), at(f64::NEG_INFINITY, -1), at(f64::NEG_INFINITY, i128::MIN), at(f64::INFINITY, 1)];
    assert_eq!(interrupted(infinite).await.unwrap(), ["1", "2", "3"]);
    assert_eq!(interrupted([None, Some(None), Some(Some(None)), Some(Some(Some(1)))]).await.unwrap(), ["1", "2", "3"]);
    assert_eq!(interrupted([0, u64::MAX, u64::MAX - 1, (1 << 53) + 1]).await.unwrap(), ["1", "2", "3"]);
}

#[tokio::test]
async fn a_position_that_would_not_be_the_same_is_refused_before_the_decision() {
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Forgetful {
        #[serde(skip)]
        at: u64,
    }
    let refused = interrupted([0, 1, 2, 3].map(|at| Forgetful { at })).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the position Forgetful { at: 1 } would be read by a restarted job as Forgetful { at: 0 }, which is not the same"
    );
    let refused = interrupted([0.0, f64::NAN, 2.0, 3.0]).await.unwrap_err();
    assert!(matches!(refused, JobError::Position(PositionError::Changed { .. })), "{refused}");
}

#[tokio::test]
async fn a_producer_may_have_none_for_its_first_position() {
    let world = World::start().await;
    let mut resumed = Vec::new();
    for round in 0..2 {
        let (mut sender, source) = channel::<String, Option<u64>>(10);
        let transform = |text: String, emit: &mut Vec<String>| {
            emit.push(text);
            Ok::<_, Cause>(())
        };
        let builder = world.job_builder().first_start(round == 0);
        let job = tokio::spawn(Job::new("c".parse().unwrap(), source, transform, builder).run());
        resumed.push(sender.resume_after().await.unwrap());
        if resumed[round].is_none() {
            sender.send(None, "header".to_owned()).await.unwrap();
        }
        drop(sender);
        job.await.unwrap().unwrap();
    }
    assert_eq!(resumed, [None, Some(None)]);
    assert_eq!(world.sink.visible(), ["header"]);
}
