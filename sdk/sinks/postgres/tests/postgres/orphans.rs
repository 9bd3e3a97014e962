//! What a process that dies leaves in the database, when nobody will ever decide about it.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use ratified::{
    Barrier, CheckpointId, CoordinatorClient, EngineSink, EngineSinkBuilder, Mode, OpenReport, RuntimeError,
    pending::FileStore,
};
use ratified_coordinator::{Config, Coordinator};
use ratified_postgres::{Database, PostgresSink, PostgresStep, Staging, Table};
use ratified_servers::{Postgres, tally};

use crate::site::{Number, Place, STAGINGS, number, open, stage, txn};

const STEPS: [PostgresStep; 7] = [
    PostgresStep::Begin,
    PostgresStep::Copy,
    PostgresStep::Prepare,
    PostgresStep::Prepared,
    PostgresStep::Commit,
    PostgresStep::Moved,
    PostgresStep::Committed,
];

/// What a life of the job is told.
struct Life {
    database: String,
    name: String,
    coordinator: String,
    pending: PathBuf,
    staging: Staging,
}

impl Life {
    async fn open(
        &self,
        restored: Option<u64>,
        step: impl Fn(PostgresStep) + Send + Sync + 'static,
    ) -> Result<EngineSink<PostgresSink<Number>>, RuntimeError> {
        let table = Table::new("low", ["n"]).unwrap().in_schema(self.name.as_str()).unwrap();
        let sink = PostgresSink::builder(Database::new(&self.database).unwrap(), [table]).name(&self.name);
        let sink = sink.schema("own").staging(self.staging).on_step(step).build().unwrap();
        let builder = EngineSinkBuilder::new(sink, CoordinatorClient::new(&self.coordinator).unwrap());
        let builder = builder.mode(Mode::AtLeastOnce).pending(FileStore::new(&self.pending)).first_start(true);
        builder.open("job.sink".parse().unwrap(), restored.map(CheckpointId::new), []).await
    }

    /// Writes 1 and 2, and dies at this step of the second one.
    fn die_at(&self, step: PostgresStep) {
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["orphans::child_that_dies", "--exact", "--ignored"]);
        child.env("ORPHANS_DATABASE", &self.database).env("ORPHANS_NAME", &self.name);
        child.env("ORPHANS_COORDINATOR", &self.coordinator).env("ORPHANS_PENDING", &self.pending);
        child.env("ORPHANS_STAGING", format!("{:?}", self.staging)).env("ORPHANS_STEP", format!("{step:?}"));
        let output = child.output().unwrap();
        assert!(output.status.code().is_none(), "{step:?}: {}", String::from_utf8_lossy(&output.stdout));
        tally::fault("SIGKILL job");
    }

    fn from_environment() -> Self {
        let told = |name: &str| env::var(format!("ORPHANS_{name}")).unwrap();
        let staging = STAGINGS.into_iter().find(|staging| format!("{staging:?}") == told("STAGING")).unwrap();
        Self {
            database: told("DATABASE"),
            name: told("NAME"),
            coordinator: told("COORDINATOR"),
            pending: told("PENDING").into(),
            staging,
        }
    }
}

async fn write(sink: &mut EngineSink<PostgresSink<Number>>, n: u64) {
    sink.write(number(n)).await.unwrap();
    sink.pre_commit(Barrier::checkpoint(CheckpointId::new(n))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run as a process of its own by the other test"]
async fn child_that_dies() {
    static ARMED: AtomicBool = AtomicBool::new(false);
    let last = env::var("ORPHANS_STEP").unwrap();
    let life = Life::from_environment();
    let opened = life.open(None, move |step| {
        if ARMED.load(Ordering::SeqCst) && format!("{step:?}") == last {
            let id = std::process::id().to_string();
            Command::new("kill").args(["-9", &id]).status().unwrap();
        }
    });
    let mut sink = opened.await.unwrap();
    write(&mut sink, 1).await;
    ARMED.store(true, Ordering::SeqCst);
    write(&mut sink, 2).await;
}

fn staged(place: &Place) -> (String, String) {
    let rows = "SELECT coalesce(string_agg(client || ' ' || txn_id, ', '), '') FROM own.staged";
    (place.prepared(), place.server.sql(rows))
}

async fn open_again(life: &Life, pending: &Path) -> OpenReport {
    let life = Life {
        pending: pending.to_owned(),
        database: life.database.clone(),
        name: life.name.clone(),
        coordinator: life.coordinator.clone(),
        staging: life.staging,
    };
    life.open(Some(1), |_| {}).await.unwrap().report().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_at_least_once_job_leaves_when_it_is_killed_is_removed_by_its_next_open_and_nobody_elses_is() {
    let server = Arc::new(Postgres::start());
    for staging in STAGINGS {
        for step in STEPS {
            if staging == Staging::Prepared && step == PostgresStep::Moved {
                continue;
            }
            let place = Place::in_server(server.clone());
            let dir = tempfile::tempdir().unwrap();
            let coordinator = Coordinator::start(Config::local(dir.path().join("data"))).await.unwrap();
            if step != PostgresStep::Committed {
                // What is prepared and never ended would hold up the same row for ever.
                place.server.sql(&format!("CREATE UNIQUE INDEX ON {}.low (n)", place.name));
            }
            // Another client's, of the same sink, which stays prepared.
            stage(&mut open(&place.sink(staging)).await.1, &txn(1), &[1000]).await;
            let of_others = staged(&place);
            let life = Life {
                database: place.server.url(),
                name: place.name.clone(),
                coordinator: coordinator.base_url(),
                pending: dir.path().join("pending"),
                staging,
            };
            life.die_at(step);
            let is_left = matches!(step, PostgresStep::Prepared | PostgresStep::Commit | PostgresStep::Moved);
            assert_eq!(staged(&place) != of_others, is_left, "{staging:?} {step:?}");

            // Whoever does not remember it tells it and leaves it alone.
            let elsewhere = open_again(&life, &dir.path().join("elsewhere")).await;
            assert_eq!(
                (elsewhere.aborted, elsewhere.unaccounted.len()),
                (0, usize::from(is_left)),
                "{staging:?} {step:?}"
            );

            let mut again = life.open(Some(1), |_| {}).await.unwrap();
            let removed = (again.report().aborted, again.report().unaccounted.len());
            assert_eq!(removed, (u64::from(is_left), 0), "{staging:?} {step:?}");
            assert_eq!(staged(&place), of_others, "{staging:?} {step:?}");
            write(&mut again, 2).await;
            again.close().await.unwrap();
            let expected: &[u64] = if step == PostgresStep::Committed { &[1, 2, 2] } else { &[1, 2] };
            assert_eq!(place.visible(), expected, "{staging:?} {step:?}");
            coordinator.shutdown().await.unwrap();
        }
    }
}
