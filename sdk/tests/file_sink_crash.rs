//! A process dies before the n-th step that changes the disk, for every n; the next process ends the transaction as it
//! was decided, and finds no more and no less than its records.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

mod support;

use std::path::Path;

use ratified::sinks::file::{FileSink, TargetName, read_target};
use support::crash::{Site, die_before_every_step, live};

struct Files;

impl Site for Files {
    type Sink = FileSink<u64>;

    fn sink(dir: &Path, step: impl Fn() + Send + Sync + 'static) -> FileSink<u64> {
        let (odd, even): (TargetName, TargetName) = ("odd".parse().unwrap(), "even".parse().unwrap());
        FileSink::json_lines(dir.join("deep/out"), odd.clone())
            .buffer_bytes(4)
            .route(move |number| if number % 2 == 0 { even.clone() } else { odd.clone() })
            .on_step(move |_| {
                step();
                Ok(())
            })
            .build()
            .unwrap()
    }

    async fn visible(dir: &Path) -> String {
        let read = |name: &str| read_target(&dir.join("deep/out"), &name.parse().unwrap()).unwrap();
        String::from_utf8([read("odd"), read("even")].concat()).unwrap()
    }
}

#[tokio::test]
#[ignore = "run as a process of its own by the other test"]
async fn child() {
    live::<Files>().await;
}

#[tokio::test]
async fn a_crash_before_any_step_is_recovered_from() {
    let [undecided, moved, found] = die_before_every_step::<Files>().await;
    // Directories, writes and syncs; before each of two renames; before the two syncs after them, and at the end.
    assert!(undecided >= 10, "{undecided}");
    assert_eq!((moved, found), (2, 3));
}
