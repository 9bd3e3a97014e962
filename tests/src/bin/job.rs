//! A pipeline in a process of its own, which kills or suspends itself where it is told to.
//!
//! `job <split|engine|composite|participant|objects_split|objects_engine> <url> <dir> <name> <records> <per transaction>
//! [--pending DIR] [--bucket URL] [--die PLACE:NTH] [--stop PLACE:NTH]`
//!
//! `--fail PLACE:NTH --call CALL --errno EIO|ENOSPC --times Once|Always --pipes DIR` lets calls of this process fail from a
//! place on; it must run inside libfiu. `--timeout-ms MS` is how long its transactions may stay open.
//!
//! With `--prepared URL` or `--ledger URL` of a PostgreSQL database the rows go there, for `split` and `engine`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test program: a failure here is a failed test"
)]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, Mutex},
};

use ratified_postgres::Staging;
use ratified_tests::{
    fiu::{Errno, Fiu, Times},
    pipeline::{
        Places, Plan, Rows, run_composite, run_engine, run_objects_engine, run_objects_split, run_participant,
        run_postgres, run_split,
    },
};
use rustix::process::{Signal, getpid, kill_process};

struct Arguments {
    words: Vec<String>,
    options: BTreeMap<String, String>,
}

impl Arguments {
    fn read() -> Self {
        let (mut words, mut options) = (Vec::new(), BTreeMap::new());
        let mut rest = std::env::args().skip(1);
        while let Some(word) = rest.next() {
            match word.strip_prefix("--") {
                Some(name) => drop(options.insert(name.to_owned(), rest.next().expect("an option has a value"))),
                None => words.push(word),
            }
        }
        Self { words, options }
    }

    fn word(&self, at: usize) -> &str {
        self.words.get(at).expect("six arguments")
    }

    fn option(&self, name: &str) -> &str {
        self.options.get(name).expect("the driver needs this option")
    }

    /// A place and how often it must have been passed before.
    fn place(&self, option: &str) -> Option<(String, u64)> {
        let (place, nth) = self.options.get(option)?.split_once(':').expect("PLACE:NTH");
        Some((place.to_owned(), nth.parse().expect("a number")))
    }
}

/// What happens at a place.
enum Deed {
    Signal(Signal),
    Fail { fiu: Fiu, call: String, errno: Errno, times: Times },
}

impl Deed {
    fn carry_out(&self) {
        match self {
            Self::Signal(signal) => {
                kill_process(getpid(), *signal).unwrap();
                // SIGKILL may take a moment to arrive; nothing may happen behind this place.
                if *signal == Signal::KILL {
                    loop {
                        std::thread::park();
                    }
                }
            }
            Self::Fail { fiu, call, errno, times } => {
                eprintln!("job: {}", fiu.fail(std::process::id(), call, *errno, *times));
            }
        }
    }
}

/// Does something to this process when a place is passed for the n-th time.
fn deeds(at: Vec<(Deed, (String, u64))>) -> Places {
    let passed: Mutex<BTreeMap<String, u64>> = Mutex::default();
    Arc::new(move |place| {
        let mut passed = passed.lock().unwrap();
        let count = passed.entry(place.to_owned()).or_default();
        for (deed, (wanted, nth)) in &at {
            if wanted == place && nth == count {
                deed.carry_out();
            }
        }
        *count += 1;
    })
}

fn failure(arguments: &Arguments) -> Option<(Deed, (String, u64))> {
    let place = arguments.place("fail")?;
    let option = |name: &str| arguments.options.get(name).expect("--fail needs --call, --errno, --times and --pipes");
    let errno = Errno::ALL.into_iter().find(|errno| errno.name() == option("errno")).expect("EIO or ENOSPC");
    let times = if option("times") == "Once" { Times::Once } else { Times::Always };
    let fiu = Fiu::new(Path::new(option("pipes")));
    Some((Deed::Fail { fiu, call: option("call").clone(), errno, times }, place))
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let arguments = Arguments::read();
    let kill = arguments.place("die").map(|place| (Deed::Signal(Signal::KILL), place));
    let stop = arguments.place("stop").map(|place| (Deed::Signal(Signal::STOP), place));
    let mut plan = Plan::new(arguments.word(1), Path::new(arguments.word(2)));
    plan.name = arguments.word(3).to_owned();
    plan.records = arguments.word(4).parse().expect("a number of records");
    plan.per_txn = arguments.word(5).parse().expect("records per transaction");
    plan.places = deeds([kill, stop, failure(&arguments)].into_iter().flatten().collect());
    plan.timeout_ms = arguments.options.get("timeout-ms").map(|ms| ms.parse().expect("milliseconds"));
    if let Some(pending) = arguments.options.get("pending") {
        plan.pending = PathBuf::from(pending);
    }
    let stagings = [("prepared", Staging::Prepared), ("ledger", Staging::Ledger)];
    let rows = stagings
        .into_iter()
        .find_map(|(option, staging)| Some(Rows { url: arguments.options.get(option)?.clone(), staging }));
    if let Some(rows) = rows {
        return exit(run_postgres(&plan, &rows, arguments.word(0)).await);
    }
    exit(match arguments.word(0) {
        "split" => run_split(&plan).await.map(drop).map_err(|e| e.to_string()),
        "composite" => run_composite(&plan).await.map(drop).map_err(|e| e.to_string()),
        "participant" => run_participant(&plan).await.map_err(|e| e.to_string()),
        "engine" => run_engine(&plan).await.map_err(|e| e.to_string()),
        "objects_split" => {
            run_objects_split(&plan, arguments.option("bucket")).await.map(drop).map_err(|e| e.to_string())
        }
        "objects_engine" => run_objects_engine(&plan, arguments.option("bucket")).await.map_err(|e| e.to_string()),
        other => Err(format!("{other} is no mode")),
    })
}

fn exit(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("job: {error}");
            ExitCode::FAILURE
        }
    }
}
