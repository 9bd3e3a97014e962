use std::fs;

use tempfile::TempDir;

use super::*;
use crate::job::{Read, Source};

fn file(content: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("input");
    fs::write(&path, content).unwrap();
    (dir, path)
}

/// Everything from a position on, `batch` records at a time, and the position behind each batch.
async fn read_all<S: Source>(
    source: &mut S,
    from: Option<&S::Position>,
    batch: usize,
) -> Result<(Vec<S::Record>, Vec<S::Position>), String> {
    source.seek(from).await.map_err(|e| e.to_string())?;
    let (mut records, mut positions) = (Vec::new(), Vec::new());
    loop {
        match source.read(batch).await.map_err(|e| e.to_string())? {
            Read::Records(read) => {
                assert!((1..=batch).contains(&read.len()));
                records.extend(read);
                positions.push(source.position());
            }
            Read::Idle => panic!("a file is never idle"),
            Read::End => return Ok((records, positions)),
        }
    }
}

/// From every position the rest comes, and the positions are the same ones.
async fn resumes_everywhere<S: Source>(new: impl Fn() -> S) -> usize
where
    S::Record: PartialEq + std::fmt::Debug,
    S::Position: PartialEq + std::fmt::Debug,
{
    let (all, positions) = read_all(&mut new(), None, 1).await.unwrap();
    for (index, position) in positions.iter().enumerate() {
        let (rest, later) = read_all(&mut new(), Some(position), 1).await.unwrap();
        assert_eq!(rest, all[index + 1..], "{index}");
        assert_eq!(later, positions[index + 1..], "{index}");
    }
    all.len()
}

fn line(number: u64, text: &str) -> Result<Line, BadLine> {
    Ok(Line { number, text: text.to_owned() })
}

#[tokio::test]
async fn lines_come_in_order_and_bad_ones_with_their_numbers() {
    let (_dir, path) = file(b"one\r\n\nthr\xffee\nfour and more\n12345\r\nlast");
    let source = || LineSource::new(&path).max_line_bytes(5);
    let (lines, _) = read_all(&mut source(), None, 2).await.unwrap();
    let not_utf8 = BadLine { number: 3, fault: LineFault::NotUtf8 { valid_up_to: 3 }, bytes: b"thr\xffee".to_vec() };
    assert_eq!(lines[2].as_ref().unwrap_err().fault, LineFault::TooLong { limit: 5 }, "{not_utf8:?} has 6 bytes");
    let too_long =
        |number, start: &[u8]| Err(BadLine { number, fault: LineFault::TooLong { limit: 5 }, bytes: start.to_vec() });
    let expected = [
        line(1, "one"),
        line(2, ""),
        too_long(3, b"thr\xffe"),
        too_long(4, b"four "),
        line(5, "12345"),
        line(6, "last"),
    ];
    assert_eq!(lines, expected);
    let (lines, _) = read_all(&mut LineSource::new(&path), None, 100).await.unwrap();
    assert_eq!(lines[2], Err(not_utf8));
    assert_eq!(resumes_everywhere(source).await, 6);
}

#[tokio::test]
async fn a_line_is_taken_up_to_its_bound_whatever_its_end() {
    for (content, is_whole) in [
        ("12345", true),
        ("12345\n", true),
        ("12345\r\n", true),
        ("123456", false),
        ("123456\n", false),
        ("12345\r", false),
    ] {
        let (_dir, path) = file(content);
        let mut reader = LineReader::open(&path, &FilePosition::default(), 5).unwrap();
        let line = reader.next_line().unwrap().unwrap();
        assert_eq!((line.bytes.as_slice(), line.is_whole), (&b"12345"[..], is_whole), "{content:?}");
        assert_eq!(reader.next_line().unwrap(), None);
        assert_eq!(reader.position().offset, content.len() as u64);
    }
}

#[tokio::test]
async fn a_file_that_is_not_the_one_that_was_read_is_refused() {
    let (_dir, path) = file("one\ntwo\nthree\n");
    let (_, positions) = read_all(&mut LineSource::new(&path), None, 1).await.unwrap();
    assert_eq!(positions[1], FilePosition { offset: 8, lines: 2, crc32: crc32fast::hash(b"one\ntwo\n") });
    for other in ["one\ntow\nthree\n", "one\nt", ""] {
        fs::write(&path, other).unwrap();
        let error = read_all(&mut LineSource::new(&path), Some(&positions[1]), 1).await.unwrap_err();
        assert!(
            error.ends_with("its first 8 bytes (2 lines) are not those that were read before; restore the file"),
            "{error}"
        );
    }
    fs::remove_file(&path).unwrap();
    let error = read_all(&mut LineSource::new(&path), None, 1).await.unwrap_err();
    assert!(error.starts_with(&path.display().to_string()), "{error}");
}

#[tokio::test]
async fn a_file_may_grow_by_whole_lines_only() {
    let (_dir, path) = file("one\ntwo\n");
    let (_, positions) = read_all(&mut LineSource::new(&path), None, 10).await.unwrap();
    fs::write(&path, "one\ntwo\nthr").unwrap();
    let (lines, positions) = read_all(&mut LineSource::new(&path), positions.last(), 10).await.unwrap();
    assert_eq!(lines, [line(3, "thr")]);
    let (lines, _) = read_all(&mut LineSource::new(&path), positions.last(), 10).await.unwrap();
    assert_eq!(lines, []);
    fs::write(&path, "one\ntwo\nthree\n").unwrap();
    let error = read_all(&mut LineSource::new(&path), positions.last(), 10).await.unwrap_err();
    assert!(error.contains("goes on at byte 11 now; append whole lines only"), "{error}");
}

#[cfg(feature = "csv")]
mod csv {
    use serde::Deserialize;

    use super::{super::csv::*, *};

    #[derive(Debug, Clone, PartialEq, Deserialize)]
    struct Item {
        id: u64,
        name: String,
    }

    fn item(line: u64, id: u64, name: &str) -> Result<Row<Item>, BadRow> {
        Ok(Row { line, value: Item { id, name: name.to_owned() }, end: FilePosition::default() })
    }

    fn bad(line: u64, fault: RowFault, fields: &[&str]) -> Result<Row<Item>, BadRow> {
        let fields = fields.iter().map(|&field| field.to_owned()).collect();
        Err(BadRow { line, fault, fields, end: FilePosition::default() })
    }

    /// Rows without where they end, as they are expected, and where they end.
    fn parted(rows: &[Result<Row<Item>, BadRow>]) -> (Vec<Result<Row<Item>, BadRow>>, Vec<FilePosition>) {
        let part = |row: &Result<Row<Item>, BadRow>| match row.clone() {
            Ok(Row { end, line, value }) => (Ok(Row { line, value, end: FilePosition::default() }), end),
            Err(BadRow { end, line, fault, fields }) => {
                (Err(BadRow { line, fault, fields, end: FilePosition::default() }), end)
            }
        };
        rows.iter().map(part).unzip()
    }

    const CONTENT: &[u8] = b"name,id\nanna,1\n\"b\nb\",2\nsolo\nc,3,x\nd,four\ne\xff,5\n\nf,6";

    fn expected() -> Vec<Result<Row<Item>, BadRow>> {
        let invalid = RowFault::Invalid { why: "field 1: invalid digit found in string".to_owned() };
        vec![
            item(2, 1, "anna"),
            item(3, 2, "b\nb"),
            bad(5, RowFault::Fields { expected: 2, found: 1 }, &["solo"]),
            bad(6, RowFault::Fields { expected: 2, found: 3 }, &["c", "3", "x"]),
            bad(7, invalid, &["d", "four"]),
            bad(8, RowFault::NotUtf8 { field: 0 }, &["e\u{fffd}", "5"]),
            item(10, 6, "f"),
        ]
    }

    #[tokio::test]
    async fn rows_come_in_order_and_bad_ones_with_their_lines() {
        let (_dir, path) = file(CONTENT);
        let mut one_by_one = Vec::new();
        for batch in [1, 3, 100] {
            let (rows, positions) = read_all(&mut CsvSource::<Item>::new(&path), None, batch).await.unwrap();
            let (rows, ends) = parted(&rows);
            assert_eq!(rows, expected());
            assert_eq!(
                ends.iter().skip(batch - 1).step_by(batch).collect::<Vec<_>>(),
                positions.iter().take(7 / batch).collect::<Vec<_>>()
            );
            assert_eq!(ends.last(), positions.last());
            one_by_one.push(ends);
        }
        assert!(one_by_one.windows(2).all(|two| two[0] == two[1]), "where a row ends does not depend on who asks");
        assert_eq!(resumes_everywhere(|| CsvSource::<Item>::new(&path)).await, 7);
    }

    #[tokio::test]
    async fn line_ends_of_two_bytes_change_nothing() {
        let content =
            String::from_utf8_lossy(CONTENT).replace('\n', "\r\n").replace("b\r\nb", "b\nb").replace('\u{fffd}', "");
        let (_dir, path) = file(content);
        let (rows, _) = read_all(&mut CsvSource::<Item>::new(&path), None, 1).await.unwrap();
        let mut expected = expected();
        expected[5] = item(8, 5, "e");
        assert_eq!(parted(&rows).0, expected);
        assert_eq!(resumes_everywhere(|| CsvSource::<Item>::new(&path)).await, 7);
    }

    #[tokio::test]
    async fn a_position_holds_over_many_read_buffers() {
        let rows: String = (0..5000).map(|id| format!("{id};\"name of {id}, quoted\"\n")).collect();
        let (_dir, path) = file(format!("id;name\n{rows}"));
        let source = || CsvSource::<Item>::new(&path).delimiter(b';');
        let (all, positions) = read_all(&mut source(), None, 700).await.unwrap();
        assert_eq!(all.len(), 5000);
        assert_eq!(parted(&all).0[4999], item(5001, 4999, "name of 4999, quoted"));
        for position in &positions {
            let (rest, _) = read_all(&mut source(), Some(position), 1000).await.unwrap();
            assert_eq!(rest.len() as u64, 5001 - position.lines);
            assert_eq!(rest, all[all.len() - rest.len()..]);
        }
    }

    #[tokio::test]
    async fn a_record_is_taken_up_to_its_bound() {
        let limit = 30_000;
        for (length, taken) in [(limit - 5, true), (limit - 4, false)] {
            // Quotes, comma, number and line end are 5 bytes more.
            let (_dir, path) = file(format!("name,id\na,1\n\"{}\",2\nb,3\n", "x".repeat(length)));
            let mut source = CsvSource::<Item>::new(&path).max_record_bytes(limit);
            match read_all(&mut source, None, 1).await {
                Ok((rows, _)) => assert!(taken && rows.len() == 3),
                Err(error) => {
                    assert!(!taken);
                    assert!(error.ends_with("line 3 has more than 30000 bytes: is a quote not closed?"), "{error}");
                }
            }
        }
    }

    #[tokio::test]
    async fn an_open_quote_ends_the_job_with_its_line_and_without_reading_everything() {
        let (_dir, path) = file(format!("name,id\na,1\n\"b,2\n{}", "c,3\n".repeat(100_000)));
        let error = read_all(&mut CsvSource::<Item>::new(&path).max_record_bytes(1000), None, 1).await.unwrap_err();
        assert!(error.contains("the record that begins in line 3 has more than 1000 bytes"), "{error}");
    }

    #[tokio::test]
    async fn a_file_without_a_required_column_is_refused_as_a_whole() {
        let (_dir, path) = file("name,number\na,1\n");
        let source = || CsvSource::<Item>::new(&path);
        let error = read_all(&mut source().require_columns(&["name", "id"]), None, 1).await.unwrap_err();
        assert!(error.ends_with("the header has no column \"id\""), "{error}");
        let (rows, _) = read_all(&mut source(), None, 1).await.unwrap();
        let missing = RowFault::Invalid { why: "missing field `id`".to_owned() };
        assert_eq!(parted(&rows).0, [bad(2, missing, &["a", "1"])]);
    }

    #[tokio::test]
    async fn a_changed_file_is_refused() {
        let (_dir, path) = file("name,id\na,1\nb,2\n");
        let (_, positions) = read_all(&mut CsvSource::<Item>::new(&path), None, 1).await.unwrap();
        fs::write(&path, "name,id\na,7\nb,2\n").unwrap();
        let error = read_all(&mut CsvSource::<Item>::new(&path), positions.first(), 1).await.unwrap_err();
        assert!(error.contains("its first 12 bytes (2 lines) are not those that were read before"), "{error}");
    }
}
