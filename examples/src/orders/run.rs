//! A run that nobody kills: how far it is, how fast, and in how much memory; then what is in both places.

use std::{
    fmt, fs,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::ProgressBar;
use ratified::{job::JobReport, postgres::Database};
use ratified_servers::Postgres;
use thiserror::Error;

use super::{AMOUNT_NAMES, Cents, Lake, OrderPosition, Orders, OrdersError, Place, SchemaName, Tables, Visible};
use crate::progress::terminal_bar;

/// Why a run did not reach its end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// No database is named. The caller must name one, or ask for one that is thrown away.
    #[error(
        "where do the baskets go? Name a database, whose role may make a schema and whose server has \
         max_prepared_transactions > 0:\n\n    orders --postgres postgresql://USER:PASSWORD@HOST/DATABASE [--store DIR | \
         s3://BUCKET/PREFIX]\n\nNone at hand, but its programs are installed (Debian: apt-get install postgresql)?\n\n    \
         orders --throw-away    a PostgreSQL for this run only\n    orders --drill 50      the same, and everything is killed \
         while it works"
    )]
    NoDatabase,
    /// There are no programs to make a database of its own. The caller must install them.
    #[error("no PostgreSQL is installed: apt-get install postgresql, or set PGBIN to the directory that has initdb")]
    NotInstalled,
    /// The job.
    #[error(transparent)]
    Orders(#[from] OrdersError),
    /// The throw-away server, or the directory for it.
    #[error("the throw-away PostgreSQL: {0}")]
    Server(std::io::Error),
    /// The input.
    #[error("{}: {source}", path.display())]
    Input {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Run {
    /// The file of transactions.
    pub input: PathBuf,
    /// The database's URL.
    pub postgres: Option<String>,
    /// The schema of its tables.
    pub schema: SchemaName,
    /// Where items go.
    pub store: Place,
    /// Where the pending store is kept, and the store of an embedded coordinator.
    pub data_dir: PathBuf,
    /// The coordinator's URL; without one, one is embedded.
    pub coordinator: Option<String>,
    /// The job's name at the coordinator.
    pub client: String,
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
    /// See [`RunError`]; running it again is always safe.
    pub async fn run(&self) -> Result<Done, RunError> {
        let url = self.postgres.as_ref().ok_or(RunError::NoDatabase)?;
        let failed = |source| RunError::Input { path: self.input.clone(), source };
        let length = fs::metadata(&self.input).map_err(failed)?.len();
        let progress = Arc::new(Progress::new(length));
        let watched = progress.clone();
        let orders = Orders {
            input: self.input.clone(),
            tables: Tables::new(Database::new(url).map_err(OrdersError::from)?, self.schema.clone()),
            lake: Lake::new(self.store.clone()).map_err(OrdersError::from)?,
            data_dir: self.data_dir.clone(),
            coordinator: self.coordinator.clone(),
            client: self.client.parse().map_err(OrdersError::Name)?,
            checkpoint_baskets: self.checkpoint_baskets,
            observer: Arc::new(move |position| watched.at(position)),
        };
        let begun = Instant::now();
        let report = orders.run().await?;
        let took = begun.elapsed();
        let resident = progress.finish();
        let visible = orders.visible().await?;
        visible.check(&report.position.tally)?;
        Ok(Done { report, visible, took, resident, schema: self.schema.clone(), store: self.store.clone() })
    }

    /// The same, to a database and a directory that are gone afterwards.
    ///
    /// # Errors
    /// See [`RunError`].
    pub async fn thrown_away(&self) -> Result<Done, RunError> {
        if !Postgres::is_installed() {
            return Err(RunError::NotInstalled);
        }
        let dir = tempfile::tempdir().map_err(RunError::Server)?;
        let started = tokio::task::spawn_blocking(Postgres::start).await;
        let server = started.map_err(|error| RunError::Server(error.into()))?;
        let run = Self {
            postgres: Some(server.url()),
            store: Place::Dir(dir.path().join("store")),
            data_dir: dir.path().join("data"),
            ..self.clone()
        };
        let done = run.run().await;
        tokio::task::spawn_blocking(move || drop(server)).await.map_err(|error| RunError::Server(error.into()))?;
        done
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
        let bar = terminal_bar(length, "{bar:40} {percent} %, {elapsed}, {msg}");
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
