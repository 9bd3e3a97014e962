//! Files as the source of a job: what is read does not depend on where reading began.

use std::{cell::RefCell, fs, path::Path};

use ratified::job::{BadRow, CsvSource, FilePosition, LineReader, Read, Row, Source};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

struct Place {
    dir: TempDir,
    runtime: Runtime,
}

thread_local! {
    static PLACE: RefCell<Place> = RefCell::new(Place {
        dir: tempfile::tempdir().expect("a directory"),
        runtime: Builder::new_current_thread().build().expect("a runtime"),
    });
}

type AnyRow = Result<Row<Vec<String>>, BadRow>;

/// A byte that says where to begin anew and what the bounds are, and the content of a file.
pub fn files(data: &[u8]) {
    let Some((&plan, content)) = data.split_first() else { return };
    PLACE.with_borrow(|Place { dir, runtime }| {
        let path = dir.path().join("input");
        fs::write(&path, content).expect("the file is written");
        let (again, limit) = (usize::from(plan & 7), if plan & 8 == 0 { 1000 } else { 4 + usize::from(plan >> 4) });
        lines(&path, again, limit);
        runtime.block_on(rows(&path, again, limit));
    });
}

fn lines(path: &Path, again: usize, limit: usize) {
    let Ok(mut whole) = LineReader::open(path, &FilePosition::default(), limit) else { return };
    let (mut read, mut positions) = (Vec::new(), vec![whole.position()]);
    while let Some(line) = whole.next_line().expect("a file that can be opened can be read") {
        assert_eq!(line.number, read.len() as u64 + 1);
        assert!(line.bytes.len() <= limit && line.is_whole == (line.length <= limit as u64));
        read.push(line);
        positions.push(whole.position());
    }
    let again = again.min(read.len());
    let mut rest = LineReader::open(path, &positions[again], limit).expect("it can be opened again");
    for line in &read[again..] {
        assert_eq!(rest.next_line().expect("it can be read again").as_ref(), Some(line));
    }
    assert_eq!(rest.next_line().expect("it can be read again"), None);
    assert_eq!(Some(&rest.position()), positions.last());
}

async fn rows(path: &Path, again: usize, limit: usize) {
    let new = || CsvSource::<Vec<String>>::new(path).max_record_bytes(limit).max_record_lines(3);
    let Some(read) = rows_from(new(), None).await else { return };
    let ends = |row: &AnyRow| row.as_ref().map_or_else(|bad| bad.end, |row| row.end);
    let Some(last) = read.get(again.min(read.len().saturating_sub(1))) else { return };
    let rest = rows_from(new(), Some(&ends(last))).await.expect("it can be read again");
    assert_eq!(rest, read[(again + 1).min(read.len())..]);
    assert!(read.iter().map(|row| ends(row).offset).is_sorted_by(|one, next| one < next));
}

async fn rows_from(mut source: CsvSource<Vec<String>>, from: Option<&FilePosition>) -> Option<Vec<AnyRow>> {
    source.seek(from).await.ok()?;
    let mut all = Vec::new();
    while let Read::Records(rows) = source.read(1000).await.expect("a file that can be opened can be read") {
        all.extend(rows);
    }
    Some(all)
}

/// Files as people's are.
pub fn file_seeds() -> Vec<Vec<u8>> {
    [
        &b"\x01id,name\n1,anna\n2,\"b,\n\"\"b\"\"\"\n\n3,eve\n"[..],
        b"\x02\xef\xbb\xbfid,name\r\n1,anna\r\n\xef\xbb\xbf2,\"b\rob\"\r\n3",
        b"\x03id\r1\r\r\"2\r\n\"\r3\r",
        b"\x1aa,b\n\"stray,1\nc,\"2\nd\xff,3\ne,\0\n",
        b"\x00\xff\xfei\0d\0",
    ]
    .map(<[u8]>::to_vec)
    .to_vec()
}
