//! Stages records: COPY into a transaction of the database that `pre_commit` prepares, or commits beside the targets.

use std::{fmt, marker::PhantomData, mem, pin::Pin, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::SinkExt as _;
use tokio_postgres::{CopyInSink, Statement};

use super::{
    config::{PostgresStep, Settings},
    connect::{Connected, WRITER, connect},
    control, fence,
    handle::{PostgresHandle, Staging},
    ledger::{self, Part},
    markers,
    names::{Gid, session_name},
    row::{CopyRow, PgRecord},
    targets::{self, Target},
};
use crate::database::{Failure, literal};
use ratified::{
    Certainty, SinkError, SinkWriter, TxnContext,
    author::{Current, Stage},
};

/// Stages one transaction after the other on a connection of its own, which is made again when it is lost. Any failure is
/// kept: every later call for that transaction tells it again. A `write` or `pre_commit` whose future was dropped counts
/// as failed.
pub struct PostgresWriter<R> {
    settings: Arc<Settings>,
    targets: Arc<[Target]>,
    idle: Option<Line>,
    current: Current<Box<Open>, u64>,
    staged_bytes: u64,
    records: PhantomData<fn(R)>,
}

/// A connection, what it is called, and its statements.
struct Line {
    connected: Connected,
    name: String,
    copies: Vec<Option<Statement>>,
}

/// An open transaction of the database.
struct Open {
    line: Line,
    /// Under which number rows are staged, in [`Staging::Ledger`].
    stage_id: Option<i64>,
    buffers: Vec<Buffer>,
    buffered: usize,
    copying: Option<Copying>,
}

#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    rows: u64,
}

/// A COPY that takes rows of the table with this index.
struct Copying {
    index: usize,
    sink: Pin<Box<CopyInSink<Bytes>>>,
}

impl<R> fmt::Debug for PostgresWriter<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresWriter").field("database", &self.settings.database).finish_non_exhaustive()
    }
}

#[async_trait]
impl<R: PgRecord> SinkWriter for PostgresWriter<R> {
    type Record = R;
    type Handle = PostgresHandle;

    /// # Errors
    /// [`SinkError::Rejected`] if a newer owner has fenced this one; a database that cannot be reached is asked again.
    async fn begin(&mut self, txn: &TxnContext) -> Result<PostgresHandle, SinkError> {
        self.current.clear();
        self.settings.step(PostgresStep::Begin);
        let line = match self.idle.take().filter(|line| line.connected.session.is_open()) {
            Some(line) => line,
            None => Line::new(connect(&self.settings, WRITER).await?, self.targets.len()),
        };
        let open = Open::begin(line, txn, &self.settings, self.targets.len()).await?;
        self.current.begin(txn, Box::new(open));
        Ok(PostgresHandle::new(self.settings.sink.as_str(), self.settings.staging))
    }

    async fn write(&mut self, txn: &TxnContext, _: &mut PostgresHandle, records: Vec<R>) -> Result<(), SinkError> {
        let mut open = self.current.take_open(txn)?;
        let staged = self.stage(&mut open, records).await.map(|()| Stage::Open(open));
        self.current.put(staged.map_err(ends_the_writer))
    }

    async fn pre_commit(&mut self, txn: &TxnContext, handle: &mut PostgresHandle) -> Result<(), SinkError> {
        let prepared = match self.current.take(txn)? {
            Stage::Open(open) => self.prepare(*open, txn).await,
            Stage::Prepared(rows) => Ok(rows),
        };
        if let Ok(rows) = &prepared {
            handle.rows = *rows;
        }
        self.current.put(prepared.map(Stage::Prepared).map_err(ends_the_writer))
    }

    fn staged_bytes(&self) -> u64 {
        self.staged_bytes
    }
}

impl<R: PgRecord> PostgresWriter<R> {
    pub(super) async fn open(settings: Arc<Settings>) -> Result<Self, SinkError> {
        let mut connected = connect(&settings, WRITER).await?;
        control::ensure(&mut connected.session, &settings).await?;
        let targets: Arc<[Target]> = targets::find_all(&mut connected.session, &settings).await?.into();
        let idle = Some(Line::new(connected, targets.len()));
        Ok(Self { settings, targets, idle, current: Current::default(), staged_bytes: 0, records: PhantomData })
    }

    async fn stage(&mut self, open: &mut Open, records: Vec<R>) -> Result<(), SinkError> {
        for record in records {
            let added = open.push(&self.settings, &self.targets, &record)?;
            drop(record);
            self.staged_bytes = self.staged_bytes.saturating_add(added as u64);
            if open.buffered >= self.settings.buffer_bytes {
                open.flush(&self.settings, &self.targets).await?;
            }
        }
        Ok(())
    }

    async fn prepare(&mut self, mut open: Open, txn: &TxnContext) -> Result<u64, SinkError> {
        open.flush(&self.settings, &self.targets).await?;
        open.finish_copy().await?;
        match open.stage_id {
            None => open.prepare(&self.settings, txn).await?,
            Some(id) => open.commit_staged(&self.settings, &self.targets, txn, id).await?,
        }
        self.settings.step(PostgresStep::Prepared);
        let rows = open.buffers.iter().map(|buffer| buffer.rows).sum();
        self.idle = Some(open.line);
        Ok(rows)
    }
}

/// The transaction of the database is gone with the call: repeating it alone changes nothing.
fn ends_the_writer(error: SinkError) -> SinkError {
    match error {
        SinkError::Retry { after, cause, .. } => SinkError::Retry { after, certainty: Certainty::Indeterminate, cause },
        other => other,
    }
}

impl Line {
    fn new(connected: Connected, targets: usize) -> Self {
        Self { connected, name: WRITER.to_owned(), copies: vec![None; targets] }
    }

    /// Tells what it works for, before it reads who may: a newer owner finds it by this name.
    async fn call_itself(&mut self, name: String) -> Result<(), Failure> {
        if self.name != name {
            self.connected
                .session
                .run("name the session", &format!("SET application_name = {}", literal(&name)))
                .await?;
            self.name = name;
        }
        Ok(())
    }
}

impl Open {
    async fn begin(mut line: Line, txn: &TxnContext, settings: &Settings, targets: usize) -> Result<Self, SinkError> {
        let name = session_name(&settings.sink, &txn.client, txn.epoch);
        line.call_itself(name).await.map_err(Failure::into_determinate)?;
        let session = &line.connected.session;
        let begun = session.run("begin", "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").await;
        begun.map_err(Failure::into_determinate)?;
        fence::check_owner(session, settings, txn).await?;
        let stage_id = match settings.staging {
            Staging::Prepared => None,
            Staging::Ledger => Some(ledger::draw_id(session, settings).await.map_err(Failure::into_determinate)?),
        };
        let buffers = (0..targets).map(|_| Buffer::default()).collect();
        Ok(Self { line, stage_id, buffers, buffered: 0, copying: None })
    }

    /// Buffers a record; says how many bytes it has.
    fn push<R: PgRecord>(&mut self, settings: &Settings, targets: &[Target], record: &R) -> Result<usize, SinkError> {
        let index = record.table();
        let (Some(target), Some(buffer)) = (targets.get(index), self.buffers.get_mut(index)) else {
            let count = targets.len();
            return Err(SinkError::rejected(format!(
                "a record goes to table {index}, and the sink has {count} from 0 on"
            )));
        };
        let before = buffer.bytes.len();
        let mut row = CopyRow::new(&mut buffer.bytes);
        let mut width = target.width;
        if let Some(id) = self.stage_id {
            row.value(id).value(buffer.rows);
            width += 2;
        }
        let filled = record.fill(&mut row).and_then(|()| row.end(width));
        filled.map_err(|cause| SinkError::rejected(format!("a row for {}: {cause}", target.table)))?;
        let added = buffer.bytes.len().saturating_sub(before);
        if added > settings.max_row_bytes {
            let (limit, table) = (settings.max_row_bytes, &target.table);
            return Err(SinkError::rejected(format!("a row for {table} of {added} bytes is longer than {limit}")));
        }
        buffer.rows += 1;
        self.buffered = self.buffered.saturating_add(added);
        Ok(added)
    }

    async fn flush(&mut self, settings: &Settings, targets: &[Target]) -> Result<(), SinkError> {
        // The table that is being copied to first: going on with it costs nothing.
        let current = self.copying.as_ref().map(|copying| copying.index);
        let order = current.into_iter().chain((0..targets.len()).filter(|index| Some(*index) != current));
        for index in order {
            let bytes = self.buffers.get_mut(index).map(|buffer| mem::take(&mut buffer.bytes)).unwrap_or_default();
            if let Some(target) = targets.get(index)
                && !bytes.is_empty()
            {
                settings.step(PostgresStep::Copy);
                self.send(index, &target.copy(settings), bytes).await?;
            }
        }
        self.buffered = 0;
        Ok(())
    }

    async fn send(&mut self, index: usize, copy: &str, bytes: Vec<u8>) -> Result<(), Failure> {
        let mut copying = match self.copying.take() {
            Some(copying) if copying.index == index => copying,
            other => {
                self.copying = other;
                self.finish_copy().await?;
                self.start_copy(index, copy).await?
            }
        };
        let session = &self.line.connected.session;
        if let Err(failure) = session.within("send rows", copying.sink.feed(Bytes::from(bytes))).await {
            // What the server has said about it is told to whoever ends the COPY.
            session.within("send rows", copying.sink.as_mut().finish()).await?;
            return Err(failure);
        }
        self.copying = Some(copying);
        Ok(())
    }

    async fn start_copy(&mut self, index: usize, copy: &str) -> Result<Copying, Failure> {
        let Line { connected: Connected { session, .. }, copies, .. } = &mut self.line;
        let known = copies.get(index).cloned().flatten();
        let statement = match known {
            Some(statement) => statement,
            None => session.within(copy, session.client().prepare(copy)).await?,
        };
        if let Some(place) = copies.get_mut(index) {
            *place = Some(statement.clone());
        }
        let sink = session.within(copy, session.client().copy_in(&statement)).await?;
        Ok(Copying { index, sink: Box::pin(sink) })
    }

    async fn finish_copy(&mut self) -> Result<(), Failure> {
        if let Some(mut copying) = self.copying.take() {
            self.line.connected.session.within("copy rows", copying.sink.as_mut().finish()).await?;
        }
        Ok(())
    }

    async fn prepare(&mut self, settings: &Settings, txn: &TxnContext) -> Result<(), SinkError> {
        let Connected { session, database } = &self.line.connected;
        markers::write(session, settings, txn).await?;
        let gid = Gid::new(&settings.sink, *database, &txn.client, txn.txn_id);
        settings.step(PostgresStep::Prepare);
        session.run("prepare", &format!("PREPARE TRANSACTION {}", literal(gid.as_str()))).await?;
        // A server whose transaction had failed answers this without an error, having rolled it back.
        let query = "SELECT 1 FROM pg_prepared_xacts WHERE gid = $1";
        let found = session.query_opt("look for it", query, &[&gid.as_str()]).await?;
        found.map(drop).ok_or_else(|| SinkError::rejected(format!("{gid} was rolled back when it was to be prepared")))
    }

    async fn commit_staged(
        &mut self,
        settings: &Settings,
        targets: &[Target],
        txn: &TxnContext,
        id: i64,
    ) -> Result<(), SinkError> {
        let parts = targets.iter().zip(&self.buffers).filter(|(_, buffer)| buffer.rows > 0);
        let parts: Vec<_> = parts.filter_map(|(target, buffer)| Part::of(target, buffer.rows)).collect();
        let session = &self.line.connected.session;
        ledger::note_staged(session, settings, txn, id, &parts).await?;
        settings.step(PostgresStep::Prepare);
        session.run("commit what is staged", "COMMIT").await?;
        match ledger::is_staged(session, settings, txn).await? {
            true => Ok(()),
            false => Err(SinkError::rejected(format!("{} was rolled back when it was to be staged", txn.txn_id))),
        }
    }
}
