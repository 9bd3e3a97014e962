//! What is read never depends on where reading began: files of the nasty kind, read in one go and from every position.

use std::sync::LazyLock;

use proptest::{prelude::*, sample::select};
use tokio::runtime::Runtime;

use super::{super::csv::CsvSource, *};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| tokio::runtime::Builder::new_current_thread().build().unwrap());

const PIECES: [&[u8]; 18] = [
    b"\xef\xbb\xbf",
    b"\n",
    b"\r\n",
    b"\r",
    b"\n",
    b",",
    b",",
    b"\"",
    b"\"\"",
    b"\"",
    b"a",
    b"bc",
    b"1",
    b" ",
    b"\0",
    b"\xff",
    b"\xc3",
    "\u{e4}".as_bytes(),
];

fn nasty() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(select(&PIECES[..]), 0..60).prop_map(|pieces| pieces.concat())
}

/// Reads everything, seeking anew behind every `step` records.
async fn restarted<S: Source>(new: &impl Fn() -> S, step: usize) -> Result<Vec<S::Record>, String> {
    let (mut records, mut at) = (Vec::new(), None);
    loop {
        let mut source = new();
        source.seek(at.as_ref()).await.map_err(|error| error.to_string())?;
        match source.read(step).await.map_err(|error| error.to_string())? {
            Read::Records(read) => records.extend(read),
            Read::Idle => panic!("a file is never idle"),
            Read::End => return Ok(records),
        }
        at = Some(source.position());
    }
}

fn check<S: Source>(content: &[u8], new: impl Fn() -> S) -> Result<Option<Vec<S::Record>>, TestCaseError>
where
    S::Record: PartialEq + std::fmt::Debug,
{
    let at_once = RUNTIME.block_on(read_all(&mut new(), None, 1000)).map(|(records, _)| records);
    for step in 1..=3 {
        let parts = RUNTIME.block_on(restarted(&new, step));
        prop_assert_eq!(&at_once, &parts, "every {} records of {:?}", step, content.escape_ascii().to_string());
    }
    Ok(at_once.ok())
}

/// The lines of a text as its definition has them, byte by byte.
fn lines_by_definition(content: &[u8]) -> Vec<Vec<u8>> {
    let text = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    let (mut lines, mut line, mut bytes) = (Vec::new(), Vec::new(), text.iter().copied().peekable());
    let mut is_open = false;
    while let Some(byte) = bytes.next() {
        is_open = true;
        match byte {
            b'\r' => drop(bytes.next_if_eq(&b'\n')),
            b'\n' => {}
            other => {
                line.push(other);
                continue;
            }
        }
        lines.push(std::mem::take(&mut line));
        is_open = false;
    }
    lines.extend(is_open.then_some(line));
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn lines_never_depend_on_where_reading_began(content in nasty(), limit in 1_usize..12) {
        let (_dir, path) = file(&content);
        for limit in [limit, 1000] {
            let read = check(&content, || LineSource::new(&path).max_line_bytes(limit))?;
            let Some(read) = read else { continue };
            let expected = lines_by_definition(&content);
            prop_assert_eq!(read.len(), expected.len());
            for (index, (line, whole)) in read.iter().zip(&expected).enumerate() {
                let (number, bytes, length) = match line {
                    Ok(line) => (line.number, line.text.as_bytes(), line.text.len()),
                    Err(bad) => (bad.number, &bad.bytes[..], usize::try_from(bad.length).unwrap()),
                };
                prop_assert_eq!((number, length), (index as u64 + 1, whole.len()));
                prop_assert_eq!(bytes, &whole[..whole.len().min(limit)]);
            }
        }
    }

    #[test]
    fn rows_never_depend_on_where_reading_began(content in nasty(), bytes in 1_usize..30, lines in 1_u64..4) {
        let (_dir, path) = file([b"k,v\n", &content[..]].concat());
        for (bytes, lines) in [(bytes, lines), (1000, 100)] {
            let new = || CsvSource::<Vec<String>>::new(&path).max_record_bytes(bytes.max(3)).max_record_lines(lines);
            let rows = check(&content, || Ended(new()))?.unwrap_or_default();
            // No row is lost: each begins behind the one before it.
            let numbers: Vec<u64> = rows.iter().map(|(line, _)| *line).collect();
            prop_assert!(numbers.is_sorted_by(|one, next| one < next), "{:?}", numbers);
        }
        let (_dir, path) = file(&content);
        check(&content, || Ended(CsvSource::<Vec<String>>::new(&path)))?;
    }
}

/// Rows as what they say and where they are.
struct Ended(CsvSource<Vec<String>>);

#[async_trait::async_trait]
impl Source for Ended {
    type Record = (u64, String);
    type Position = FilePosition;

    async fn seek(&mut self, position: Option<&FilePosition>) -> Result<(), crate::Cause> {
        self.0.seek(position).await
    }

    async fn read(&mut self, max_records: usize) -> Result<Read<Self::Record>, crate::Cause> {
        let told = |row: Result<super::super::csv::Row<Vec<String>>, super::super::csv::BadRow>| match row {
            Ok(row) => (row.line, format!("{row:?}")),
            Err(bad) => (bad.line, format!("{bad:?}")),
        };
        Ok(match self.0.read(max_records).await? {
            Read::Records(rows) => Read::Records(rows.into_iter().map(told).collect()),
            Read::Idle => Read::Idle,
            Read::End => Read::End,
        })
    }

    fn position(&self) -> FilePosition {
        self.0.position()
    }
}
