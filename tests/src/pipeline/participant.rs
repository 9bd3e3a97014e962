//! A participant that does what it is told on its standard input, a line at a time.
//!
//! ```text
//! join <client> <txnId> <epoch> <from> <to>    joins, stages the numbers from..to and flushes: `flushed <txnId>`
//! idle                                          waits until nothing is left to do: `idle`
//! ```

use std::{
    io::{self, BufRead, Write},
    thread,
};

use ratified::{
    ClientName, Epoch, TxnId,
    participant::{Participant, ParticipantError, ParticipantPoint},
    pending::FileStore,
    sinks::file::FileSink,
};
use tokio::sync::mpsc;

use super::{Plan, Row};

/// Runs a participant until the end of its input, or until it fails.
///
/// # Errors
/// What the participant says.
///
/// # Panics
/// When it is told nonsense.
pub async fn run_participant(plan: &Plan) -> Result<(), ParticipantError> {
    let places = plan.places.clone();
    let participant = Participant::builder(plan.name.parse().unwrap(), plan.files(&plan.out(), ""), plan.client())
        .pending(FileStore::new(&plan.pending))
        .poll_wait(std::time::Duration::from_secs(2))
        .on_point(move |point| places(name_of_point(point)))
        .open()
        .await?;
    let report = participant.report();
    say(&format!("open {} {}", report.applied, report.pending.len()));
    // A thread of its own: nobody waits for it when the process ends.
    let (told, mut lines) = mpsc::unbounded_channel();
    thread::spawn(move || io::stdin().lock().lines().map_while(Result::ok).try_for_each(|line| told.send(line)));
    loop {
        tokio::select! {
            line = lines.recv() => match line {
                Some(line) => obey(&participant, &line).await?,
                None => return Ok(()),
            },
            error = participant.failed() => return Err(error),
        }
    }
}

async fn obey(participant: &Participant<FileSink<Row>>, line: &str) -> Result<(), ParticipantError> {
    let words: Vec<_> = line.split(' ').collect();
    match *words.as_slice() {
        ["join", client, txn_id, epoch, from, to] => {
            let (client, txn_id): (ClientName, TxnId) = (client.parse().unwrap(), txn_id.parse().unwrap());
            let branch = match participant.join(&client, txn_id, Epoch::new(epoch.parse().unwrap())).await {
                Ok(branch) => branch,
                Err(error) => {
                    say(&format!("refused {error}"));
                    return Ok(());
                }
            };
            let numbers = from.parse().unwrap()..to.parse().unwrap();
            branch.write(numbers.map(|n: u64| Row { n }).collect()).await?;
            branch.flush().await?;
            say(&format!("flushed {txn_id}"));
        }
        ["idle"] => {
            participant.until_idle().await?;
            say("idle");
        }
        _ => panic!("{line:?}"),
    }
    Ok(())
}

fn name_of_point(point: ParticipantPoint) -> &'static str {
    match point {
        ParticipantPoint::Noted => "noted",
        ParticipantPoint::Joined => "joined",
        ParticipantPoint::Flushed => "flushed",
        ParticipantPoint::Decided => "decided",
        ParticipantPoint::Applied => "applied",
        ParticipantPoint::Acknowledged => "acknowledged",
        _ => "another point",
    }
}

fn say(line: &str) {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}
