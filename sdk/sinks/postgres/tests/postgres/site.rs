//! A server, places in it, and sinks over them.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use ratified::{Cause, ClientName, Epoch, SinkWriter, TwoPhaseSink, TxnContext, TxnId};

use ratified_postgres::{
    CopyRow, Database, PgRecord, PostgresHandle, PostgresSink, PostgresSinkBuilder, PostgresWriter, Staging, Table,
};
use ratified_servers::Postgres;

/// A number, which goes to the first table, or to the second if it is at least 1000 and there is one.
pub(crate) struct Number {
    pub(crate) n: u64,
    pub(crate) table: usize,
}

impl PgRecord for Number {
    fn table(&self) -> usize {
        self.table
    }

    fn fill(&self, row: &mut CopyRow<'_>) -> Result<(), Cause> {
        row.value(self.n);
        Ok(())
    }
}

pub(crate) fn number(n: u64) -> Number {
    Number { n, table: 0 }
}

/// Two tables, `low` and `high`, in a schema of their own, and a sink of that name.
pub(crate) struct Place {
    pub(crate) server: Arc<Postgres>,
    pub(crate) name: String,
}

impl Place {
    pub(crate) fn in_server(server: Arc<Postgres>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("place{}", COUNT.fetch_add(1, Ordering::SeqCst));
        let table = |table: &str| {
            format!(
                "CREATE TABLE {name}.{table} (seq bigint GENERATED ALWAYS AS IDENTITY, n bigint NOT NULL CHECK (n >= 0));"
            )
        };
        server.sql(&format!("CREATE SCHEMA {name}; {} {}", table("low"), table("high")));
        Self { server, name }
    }

    /// In a server of its own.
    pub(crate) fn new() -> Self {
        Self::in_server(Arc::new(Postgres::start()))
    }

    pub(crate) fn table(&self, name: &str) -> Table {
        Table::new(name, ["n"]).unwrap().in_schema(&self.name).unwrap()
    }

    pub(crate) fn builder(&self, staging: Staging) -> PostgresSinkBuilder<Number> {
        self.builder_at(&self.server.url(), staging)
    }

    pub(crate) fn builder_at(&self, url: &str, staging: Staging) -> PostgresSinkBuilder<Number> {
        self.builder_on(Database::new(url).unwrap(), staging)
    }

    pub(crate) fn builder_on(&self, database: Database, staging: Staging) -> PostgresSinkBuilder<Number> {
        let tables = [self.table("low"), self.table("high")];
        PostgresSink::builder(database, tables).name(&self.name).schema("own").staging(staging)
    }

    pub(crate) fn sink(&self, staging: Staging) -> PostgresSink<Number> {
        self.builder(staging).build().unwrap()
    }

    /// The numbers in a table in the order in which they came.
    pub(crate) fn visible_in(&self, table: &str) -> Vec<u64> {
        let text = self.server.sql(&format!("SELECT n FROM {}.{table} ORDER BY seq", self.name));
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    pub(crate) fn visible(&self) -> Vec<u64> {
        [self.visible_in("low"), self.visible_in("high")].concat()
    }

    pub(crate) fn prepared(&self) -> String {
        self.server.sql("SELECT gid FROM pg_prepared_xacts ORDER BY gid")
    }
}

pub(crate) const STAGINGS: [Staging; 2] = [Staging::Prepared, Staging::Ledger];

pub(crate) fn client() -> ClientName {
    "shop.sink.0".parse().unwrap()
}

/// The n-th transaction of the client.
pub(crate) fn txn(n: u32) -> TxnContext {
    let id: TxnId = format!("0190f2c4-7a61-7c3e-9d0a-0d0f{n:08x}").parse().unwrap();
    TxnContext::new(client(), id, Epoch::FIRST)
}

/// Stages these numbers in the first table, up to and with `pre_commit`.
pub(crate) async fn stage(writer: &mut PostgresWriter<Number>, txn: &TxnContext, numbers: &[u64]) -> PostgresHandle {
    let mut handle = writer.begin(txn).await.unwrap();
    let records = numbers.iter().map(|n| number(*n)).collect();
    writer.write(txn, &mut handle, records).await.unwrap();
    writer.pre_commit(txn, &mut handle).await.unwrap();
    handle
}

/// A committer and a writer, made as the runtime makes them.
pub(crate) async fn open(
    sink: &PostgresSink<Number>,
) -> (ratified_postgres::PostgresCommitter, PostgresWriter<Number>) {
    let committer = sink.committer().await.unwrap();
    (committer, sink.writer().await.unwrap())
}
