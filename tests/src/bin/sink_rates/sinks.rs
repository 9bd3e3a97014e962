//! The sinks, and the servers behind them.

use std::{
    fs,
    sync::atomic::{AtomicU64, Ordering},
};

use ratified::sinks::{composite::Composite, file::FileSink};

use ratified_object_store::{Format, JsonLines, ObjectStoreSink};

use ratified_postgres::{Database, PostgresSink, Staging, Table};
use ratified_servers::{Postgres, SeaweedFs};
use ratified_tests::{
    config::Config,
    pipeline::{BUCKET, bucket},
    process::Ratifyd,
};
use tempfile::TempDir;

use crate::row::{Row, parquet};

/// Everything that runs while it is measured.
pub(crate) struct Site {
    pub(crate) ratifyd: Ratifyd,
    pub(crate) postgres: Postgres,
    store: SeaweedFs,
    dir: TempDir,
    names: AtomicU64,
}

impl Site {
    pub(crate) async fn start() -> Self {
        let store = SeaweedFs::start();
        store.make_bucket(BUCKET);
        let ratifyd = Ratifyd::start(Config::new()).await;
        let dir = tempfile::tempdir().unwrap();
        let site = Self { ratifyd, postgres: Postgres::start(), store, dir, names: AtomicU64::new(0) };
        site.clean();
        site
    }

    /// A name that no leg had before.
    pub(crate) fn fresh_name(&self) -> String {
        format!("rate-{}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// Every leg begins with an empty table and an empty directory.
    pub(crate) fn clean(&self) {
        let again = "CREATE TABLE orders (id bigint, customer bigint, note text); CHECKPOINT";
        self.postgres.sql(&format!("DROP TABLE IF EXISTS orders; {again}"));
        let out = self.dir.path().join("out");
        if out.exists() {
            fs::remove_dir_all(&out).unwrap();
        }
        fs::create_dir(&out).unwrap();
    }

    pub(crate) fn file(&self) -> FileSink<Row> {
        FileSink::json_lines(self.dir.path().join("out"), "rows".parse().unwrap()).build().unwrap()
    }

    pub(crate) fn prepared(&self) -> PostgresSink<Row> {
        self.table(Staging::Prepared)
    }

    pub(crate) fn ledger(&self) -> PostgresSink<Row> {
        self.table(Staging::Ledger)
    }

    pub(crate) fn objects(&self, prefix: &str) -> ObjectStoreSink<Row> {
        self.files(prefix, JsonLines::new())
    }

    pub(crate) fn parquet(&self, prefix: &str) -> ObjectStoreSink<Row> {
        self.files(prefix, parquet())
    }

    /// The table and the files, every row in both.
    pub(crate) fn composite(&self, prefix: &str) -> Composite<Row> {
        let copy = |row: &Row, rows: &mut Vec<Row>| rows.push(*row);
        Composite::builder()
            .member("table", self.prepared(), copy)
            .member("files", self.parquet(prefix), copy)
            .build()
            .unwrap()
    }

    fn table(&self, staging: Staging) -> PostgresSink<Row> {
        let table = Table::new("orders", ["id", "customer", "note"]).unwrap();
        let database = Database::new(&self.postgres.url()).unwrap();
        PostgresSink::builder(database, [table]).staging(staging).build().unwrap()
    }

    fn files(&self, prefix: &str, format: impl Format<Row>) -> ObjectStoreSink<Row> {
        let store = bucket(&format!("http://{}", self.store.address()));
        ObjectStoreSink::multipart(store, "rows".parse().unwrap(), format).prefix(prefix).build().unwrap()
    }
}
