//! A run that nobody kills: how far it is, how fast, and in how much memory; then what is in both places.

use std::{
    error::Error,
    fmt, fs,
    io::{IsTerminal, stderr},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use ratified::{ClientName, CoordinatorClient, JobSinkBuilder, job::JobReport, pending::FileStore};
use ratified_coordinator::{Config, Coordinator};
use ratified_postgres::Database;

use super::{AMOUNT_NAMES, Cents, Lake, OrderPosition, Place, SchemaName, Tables, Visible, job};

/// Baskets that are read and written at a time.
const BATCH_BASKETS: u64 = 256;

/// What to run.
#[derive(Debug, Clone)]
pub struct Run {
    /// The file of transactions.
    pub input: PathBuf,
    /// The database's URL.
    pub postgres: String,
    /// The schema of its tables.
    pub schema: SchemaName,
    /// Where items go.
    pub store: Place,
    /// Where the pending store is kept, and the store of an embedded coordinator.
    pub data_dir: PathBuf,
    /// The coordinator's URL; without one, one is embedded.
    pub coordinator: Option<String>,
    /// The job's name at the coordinator.
    pub client: ClientName,
    /// Whether the coordinator may not know the job yet. Later that means that it has lost what it knew, and is an error.
    pub first_start: bool,
    /// A checkpoint is taken after so many baskets.
    pub checkpoint_baskets: u64,
}

/// What a run did, as a table.
#[derive(Debug, Clone)]
pub struct Done {
    report: JobReport<OrderPosition>,
    visible: Visible,
    took: Duration,
    resident: Vec<(u64, u64)>,
    schema: SchemaName,
    store: Place,
}

impl Run {
    /// Runs to the end of the input, and looks whether all that was committed is in both places.
    ///
    /// # Errors
    /// The caller must mend what it names; running it again is always safe.
    pub async fn run(&self) -> Result<Done, Box<dyn Error>> {
        let length = fs::metadata(&self.input).map_err(|error| format!("{}: {error}", self.input.display()))?.len();
        let progress = Arc::new(Progress::new(length));
        let tables = Tables::new(Database::new(&self.postgres)?, self.schema.clone());
        let lake = Lake::new(self.store.clone())?;
        tables.make().await.map_err(|error| format!("PostgreSQL: {error}"))?;
        let begun = Instant::now();
        let report = match &self.coordinator {
            Some(url) => self.run_at(url, &tables, &lake, progress.clone()).await?,
            None => {
                let coordinator = Coordinator::start(Config::local(self.data_dir.join("coordinator"))).await?;
                let report = self.run_at(&coordinator.base_url(), &tables, &lake, progress.clone()).await;
                coordinator.shutdown().await?;
                report?
            }
        };
        let took = begun.elapsed();
        let resident = progress.finish();
        let visible = Visible::of(&tables, &lake).await?;
        visible.check(&report.position.tally)?;
        Ok(Done { report, visible, took, resident, schema: self.schema.clone(), store: self.store.clone() })
    }

    async fn run_at(
        &self,
        coordinator: &str,
        tables: &Tables,
        lake: &Lake,
        progress: Arc<Progress>,
    ) -> Result<JobReport<OrderPosition>, Box<dyn Error>> {
        let sink = job::sink(tables.sink()?.build()?, lake.sink()?.build()?)?;
        let sink = JobSinkBuilder::new(sink, CoordinatorClient::new(coordinator)?)
            .pending(FileStore::new(self.data_dir.join("pending")))
            .first_start(self.first_start);
        let observer = Arc::new(move |position: &OrderPosition| progress.at(position));
        let batch = usize::try_from(self.checkpoint_baskets.min(BATCH_BASKETS))?;
        let job = job::job(self.client.clone(), &self.input, observer, sink)
            .checkpoint_records(self.checkpoint_baskets)
            .batch_records(batch);
        Ok(job.run().await?)
    }
}

/// How far the job is: a bar on a terminal, a line at each tenth elsewhere; and how much memory it takes there.
struct Progress {
    length: u64,
    begun: Instant,
    bar: Option<ProgressBar>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    first_row: Option<u64>,
    tenths: u64,
    resident: Vec<(u64, u64)>,
}

impl Progress {
    fn new(length: u64) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(length);
            match ProgressStyle::with_template("{bar:40} {percent} %, {elapsed}, {msg}") {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        Self { length: length.max(1), begun: Instant::now(), bar, seen: Mutex::default() }
    }

    fn at(&self, position: &OrderPosition) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = position.tally.rows;
        let first = *seen.first_row.get_or_insert(rows);
        let seconds = self.begun.elapsed().as_secs_f64().max(0.001);
        let rate = rows.saturating_sub(first) as f64 / seconds;
        if let Some(bar) = &self.bar {
            bar.set_position(position.file.offset);
            bar.set_message(format!("{rows} rows, {rate:.0} rows/s"));
        }
        let tenths = position.file.offset.saturating_mul(10) / self.length;
        if tenths <= seen.tenths {
            return;
        }
        seen.tenths = tenths;
        let resident = resident_kib().unwrap_or(0);
        seen.resident.push((tenths * 10, resident));
        if self.bar.is_none() {
            eprintln!("{:>3} %: {rows} rows, {rate:.0} rows/s, {} MiB resident", tenths * 10, resident / 1024);
        }
    }

    fn finish(&self) -> Vec<(u64, u64)> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        std::mem::take(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner).resident)
    }
}

/// Memory of this process in KiB, where the system tells it.
fn resident_kib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").trim().parse().ok()
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tally, visible) = (&self.report.position.tally, &self.visible);
        match self.report.resumed_from {
            Some(from) => writeln!(f, "resumed behind line {}", from.file.lines)?,
            None => writeln!(f, "started at the beginning")?,
        }
        let (commits, finished) = (self.report.commits, self.report.opened.committed);
        writeln!(f, "committed {commits} transactions, finished {finished} of earlier runs")?;
        writeln!(f)?;
        writeln!(f, "{:<26}{:>14}{:>16}{:>16}", "", "read", "PostgreSQL", "store")?;
        writeln!(f, "{:<26}{:>14}", "rows in", tally.rows)?;
        writeln!(f, "{:<26}{:>14}{:>16}", "baskets", tally.baskets, visible.baskets)?;
        writeln!(f, "{:<26}{:>14}{:>16}{:>16}", "items", tally.items, visible.items, visible.stored_items)?;
        writeln!(f, "{:<26}{:>14}{:>16}", "refused rows", tally.rejects, visible.rejects)?;
        let [read, tables, store] =
            [tally.amounts, visible.amounts, visible.stored_amounts].map(|sums| sums.to_cents().map(Cents::new));
        for (name, ((read, tables), store)) in AMOUNT_NAMES.into_iter().zip(read.into_iter().zip(tables).zip(store)) {
            writeln!(f, "{name:<26}{read:>14}{tables:>16}{store:>16}")?;
        }
        writeln!(f)?;
        if !self.resident.is_empty() {
            let told: Vec<_> =
                self.resident.iter().map(|(percent, kib)| format!("{} at {percent} %", kib / 1024)).collect();
            writeln!(f, "resident, MiB: {}", told.join(", "))?;
        }
        let rows = tally.rows - self.report.resumed_from.map_or(0, |from| from.tally.rows);
        let (seconds, schema) = (self.took.as_secs_f64(), &self.schema);
        let rate = rows as f64 / seconds.max(0.001);
        writeln!(f, "{rows} rows in {seconds:.1} s, {rate:.0} rows/s; the same in both places, to the cent")?;
        write!(f, "baskets: table {schema}.basket, refused rows: {schema}.reject, items: {}", self.store)
    }
}
