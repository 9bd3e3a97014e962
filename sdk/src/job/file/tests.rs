use std::fs;

use tempfile::TempDir;

use super::*;
use crate::job::{Read, Source};

#[cfg(feature = "csv")]
mod restarts;

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
    let not_utf8 = LineFault::NotUtf8 { valid_up_to: 3 };
    let not_utf8 = BadLine { number: 3, fault: not_utf8, bytes: b"thr\xffee".to_vec(), length: 6 };
    let too_long = |number, start: &[u8], length| {
        Err(BadLine { number, fault: LineFault::TooLong { limit: 5 }, bytes: start.to_vec(), length })
    };
    let expected = [
        line(1, "one"),
        line(2, ""),
        too_long(3, b"thr\xffe", 6),
        too_long(4, b"four ", 13),
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
        ("12345\r", true),
        ("123456", false),
        ("123456\n", false),
        ("123456\r", false),
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
            error.ends_with(
                "its first 8 bytes (2 lines) are not those that were read before; restore the file, or read this one in \
                 a job with a client name of its own"
            ),
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

#[tokio::test]
async fn a_line_may_end_in_three_ways_and_each_counts_as_one() {
    let expected = [line(1, "a"), line(2, ""), line(3, "b"), line(4, "c"), line(5, ""), line(6, "d")];
    for content in ["a\n\nb\nc\n\nd", "a\r\n\r\nb\r\nc\r\n\r\nd\r\n", "a\r\rb\rc\r\rd\r", "a\n\rb\r\nc\r\r\nd"] {
        let (_dir, path) = file(content);
        let (lines, _) = read_all(&mut LineSource::new(&path), None, 100).await.unwrap();
        assert_eq!(lines, expected, "{content:?}");
        assert_eq!(resumes_everywhere(|| LineSource::new(&path)).await, 6, "{content:?}");
    }
}

#[tokio::test]
async fn a_byte_order_mark_is_one_at_the_start_of_the_file_only() {
    let (_dir, path) = file("\u{feff}a\n\u{feff}b\n");
    let (lines, _) = read_all(&mut LineSource::new(&path), None, 1).await.unwrap();
    assert_eq!(lines, [line(1, "a"), line(2, "\u{feff}b")]);
    assert_eq!(resumes_everywhere(|| LineSource::new(&path)).await, 2);
    // A job that has read nothing yet stands behind the mark, or before it.
    let behind = LineReader::open(&path, &FilePosition::default(), 10).unwrap().position();
    assert_eq!((behind.offset, behind.lines), (3, 0));
    for position in [FilePosition::default(), behind] {
        let (lines, _) = read_all(&mut LineSource::new(&path), Some(&position), 1).await.unwrap();
        assert_eq!(lines[0], line(1, "a"));
    }
}

#[tokio::test]
async fn a_line_end_that_is_completed_later_is_still_one() {
    let (_dir, path) = file("a\r");
    let (_, positions) = read_all(&mut LineSource::new(&path), None, 1).await.unwrap();
    fs::write(&path, "a\r\nb\r\n").unwrap();
    let (lines, _) = read_all(&mut LineSource::new(&path), positions.last(), 1).await.unwrap();
    assert_eq!(lines, [line(2, "b")]);
}

#[tokio::test]
async fn what_is_no_utf8_text_is_refused_by_its_name() {
    let utf16 = |text: &str, to_bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(to_bytes).collect::<Vec<u8>>();
    let export = "id,name\r\n1,anna\r\n";
    for (content, found) in [
        (utf16(&format!("\u{feff}{export}"), u16::to_le_bytes), "this is UTF-16 (little-endian), not UTF-8 text"),
        (utf16(&format!("\u{feff}{export}"), u16::to_be_bytes), "this is UTF-16 (big-endian), not UTF-8 text"),
        (utf16(export, u16::to_le_bytes), "this is UTF-16 (little-endian), not UTF-8 text; convert it to UTF-8 first"),
        (utf16(export, u16::to_be_bytes), "this is UTF-16 (big-endian), not UTF-8 text"),
        (b"\xff\xfe\0\0i\0\0\0".to_vec(), "this is UTF-32 (little-endian), not UTF-8 text"),
        (b"\x1f\x8b\x08\0\0\0\0\0".to_vec(), "this is gzip, not UTF-8 text; unpack it first"),
        (b"\x28\xb5\x2f\xfdx".to_vec(), "this is zstd"),
        (b"BZh91AY&SYx".to_vec(), "this is bzip2"),
        (b"PK\x03\x04x".to_vec(), "this is zip, as a spreadsheet (.xlsx) is"),
        (b"PAR1\x15\x04".to_vec(), "this is Parquet"),
    ] {
        let (_dir, path) = file(&content);
        let error = read_all(&mut LineSource::new(&path), None, 1).await.unwrap_err();
        assert!(error.starts_with(&path.display().to_string()) && error.contains(found), "{error}");
        #[cfg(feature = "csv")]
        {
            let csv = read_all(&mut super::csv::CsvSource::<Vec<String>>::new(&path), None, 1).await;
            assert_eq!(csv.unwrap_err(), error);
        }
    }
    for text in ["BZh9 is a name\n", "PAR1,PAR2\n", "a\0b\0\n"] {
        let (_dir, path) = file(text);
        assert!(read_all(&mut LineSource::new(&path), None, 1).await.is_ok(), "{text}");
    }
}

#[tokio::test]
async fn what_is_kept_of_a_bad_line_is_bounded_and_its_length_is_told() {
    let long = "\u{1}".repeat(3 << 20);
    let not_utf8 = [&[b'x'; 100_000][..], b"\xff\n"].concat();
    let (_dir, path) = file([long.as_bytes(), b"\n", &not_utf8].concat());
    let (lines, _) = read_all(&mut LineSource::new(&path), None, 10).await.unwrap();
    let [Err(long), Err(not_utf8)] = &lines[..] else { panic!("both are bad") };
    assert_eq!((long.bytes.len(), long.length), (MAX_BAD_BYTES, 3 << 20));
    assert_eq!(long.to_string(), "line 1, of 3145728 bytes: it is longer than 131072 bytes (max_line_bytes)");
    assert_eq!((not_utf8.bytes.len(), not_utf8.length), (MAX_BAD_BYTES, 100_001));
    assert_eq!(not_utf8.fault, LineFault::NotUtf8 { valid_up_to: 100_000 });
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
        let fields: Vec<_> = fields.iter().map(|&field| field.to_owned()).collect();
        // What is replaced had one byte.
        let length = fields.join(",").chars().count() as u64;
        Err(BadRow { line, fault, fields, length, end: FilePosition::default() })
    }

    /// Rows without where they end, as they are expected, and where they end.
    fn parted(rows: &[Result<Row<Item>, BadRow>]) -> (Vec<Result<Row<Item>, BadRow>>, Vec<FilePosition>) {
        let part = |row: &Result<Row<Item>, BadRow>| match row.clone() {
            Ok(Row { end, line, value }) => (Ok(Row { line, value, end: FilePosition::default() }), end),
            Err(bad) => (Err(BadRow { end: FilePosition::default(), ..bad.clone() }), bad.end),
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
    async fn rows_have_the_numbers_of_their_lines_whatever_ends_a_line() {
        for content in
            ["id,name\r1,anna\r2\r\r3,\"e\rve\"\r4,f\r", "\u{feff}id,name\r\n1,anna\n2\r\n\r\n3,\"e\rve\"\r\n4,f"]
        {
            let (_dir, path) = file(content);
            let source = || CsvSource::<Item>::new(&path).require_columns(&["id", "name"]);
            let (rows, _) = read_all(&mut source(), None, 1).await.unwrap();
            let short = bad(3, RowFault::Fields { expected: 2, found: 1 }, &["2"]);
            assert_eq!(parted(&rows).0, [item(2, 1, "anna"), short, item(5, 3, "e\rve"), item(7, 4, "f")]);
            assert_eq!(resumes_everywhere(source).await, 4);
        }
    }

    #[tokio::test]
    async fn a_byte_order_mark_of_a_later_line_is_text_also_after_a_restart_there() {
        let (_dir, path) = file("\u{feff}name,id\n\u{feff}a,1\n\u{feff}\"b\",2\n");
        let source = || CsvSource::<Item>::new(&path).require_columns(&["name"]);
        let (rows, _) = read_all(&mut source(), None, 1).await.unwrap();
        assert_eq!(parted(&rows).0, [item(2, 1, "\u{feff}a"), item(3, 2, "\u{feff}\"b\"")]);
        assert_eq!(resumes_everywhere(source).await, 2);
    }

    #[tokio::test]
    async fn a_position_before_the_first_row_is_the_beginning() {
        let (_dir, path) = file("name,id\na,1\n");
        let behind_header = {
            let mut source = CsvSource::<Item>::new(&path);
            source.seek(None).await.unwrap();
            source.position()
        };
        for position in [FilePosition::default(), behind_header] {
            let (rows, _) = read_all(&mut CsvSource::<Item>::new(&path), Some(&position), 1).await.unwrap();
            assert_eq!(parted(&rows).0, [item(2, 1, "a")]);
        }
    }

    #[tokio::test]
    async fn quotes_are_taken_as_other_readers_take_them() {
        let (_dir, path) = file("name,id\n\"a\"\"b\",1\n5\" pipe,2\n\"c\" d,3\n\"\",4\n\"e,\",5\n");
        let (rows, _) = read_all(&mut CsvSource::<Item>::new(&path), None, 9).await.unwrap();
        let names = [item(2, 1, "a\"b"), item(3, 2, "5\" pipe"), item(4, 3, "c d"), item(5, 4, ""), item(6, 5, "e,")];
        assert_eq!(parted(&rows).0, names);
    }

    #[tokio::test]
    async fn a_record_is_taken_up_to_its_bounds() {
        let limit = 30_000;
        for (length, taken) in [(limit - 4, true), (limit - 3, false)] {
            // Quotes, comma and number are 4 bytes more.
            let (_dir, path) = file(format!("name,id\na,1\n\"{}\",2\nb,3\n", "x".repeat(length)));
            let mut source = CsvSource::<Item>::new(&path).max_record_bytes(limit);
            let (rows, _) = read_all(&mut source, None, 1).await.unwrap();
            let (rows, _) = parted(&rows);
            assert_eq!((rows.len(), &rows[2]), (3, &item(4, 3, "b")));
            match &rows[1] {
                Ok(_) => assert!(taken),
                Err(bad) => {
                    assert!(!taken);
                    assert_eq!((bad.line, bad.length, bad.fields.len()), (3, 30_001, 1));
                    assert_eq!(bad.fault, RowFault::TooLong { limit });
                }
            }
        }
        for (lines, taken) in [(3, true), (2, false)] {
            let (_dir, path) = file("name,id\n\"a\nb\nc\",1\nd,2\n");
            let mut source = CsvSource::<Item>::new(&path).max_record_lines(lines);
            let (rows, _) = read_all(&mut source, None, 1).await.unwrap();
            let (rows, _) = parted(&rows);
            assert_eq!((rows[0] == item(2, 1, "a\nb\nc"), rows.last()), (taken, Some(&item(5, 2, "d"))));
        }
    }

    #[tokio::test]
    async fn a_stray_quote_costs_its_line_and_nothing_else() {
        let rest: String = (4..5000).map(|n| format!("c,{n}\n")).collect();
        let (_dir, path) = file(format!("name,id\na,1\n\"b,2\n{rest}\"at the end,7\n"));
        let source = || CsvSource::<Item>::new(&path);
        let (rows, positions) = read_all(&mut source(), None, 1).await.unwrap();
        let (rows, _) = parted(&rows);
        let open = || RowFault::OpenQuote { bytes: 131_072, lines: 100 };
        assert_eq!(rows.len(), 4999);
        assert_eq!(rows[1], bad(3, open(), &["\"b,2"]));
        assert_eq!(rows[2], item(4, 4, "c"));
        assert_eq!(rows[4997], item(4999, 4999, "c"));
        assert_eq!(rows[4998], bad(5000, open(), &["\"at the end,7"]));
        assert_eq!(
            rows[1].as_ref().unwrap_err().to_string(),
            "the row in line 3, of 4 bytes: a quote in it is not closed within 100 lines (max_record_lines) and 131072 \
             bytes (max_record_bytes), or before the file ends"
        );
        let (after, _) = read_all(&mut source(), Some(&positions[1]), 1000).await.unwrap();
        assert_eq!(parted(&after).0, rows[2..]);
    }

    #[tokio::test]
    async fn what_is_kept_of_a_bad_row_is_bounded_and_its_length_is_told() {
        let many = vec!["x"; 60_000].join(",");
        let (_dir, path) = file(format!("name,id\n{}\n{many}\nz\n", "y".repeat(200_000)));
        let (rows, _) = read_all(&mut CsvSource::<Item>::new(&path), None, 1).await.unwrap();
        let [Err(long), Err(wide), _] = &rows[..] else { panic!("both are bad") };
        assert_eq!((long.length, long.fields[0].len()), (200_000, MAX_BAD_BYTES));
        assert_eq!((wide.length, wide.fields.len()), (119_999, 13_108));
    }

    #[tokio::test]
    async fn a_file_without_a_required_column_is_refused_as_a_whole() {
        let (_dir, path) = file("name,number\na,1\n");
        let source = || CsvSource::<Item>::new(&path);
        let error = read_all(&mut source().require_columns(&["name", "id"]), None, 1).await.unwrap_err();
        assert!(error.ends_with("the header has no column \"id\"; it has \"name\", \"number\""), "{error}");
        for (header, told) in [
            ("name,id\u{a0}", "it has \"name\", \"id\\u{a0}\""),
            ("name,\u{feff}id", "it has \"name\", \"\\u{feff}id\""),
            ("name;id", "it has \"name;id\""),
            ("name,\u{200b}id ", "it has \"name\", \"\\u{200b}id \""),
            ("", "it has none"),
        ] {
            let (_dir, path) = file(header);
            let mut source = CsvSource::<Item>::new(&path).require_columns(&["id"]);
            let error = read_all(&mut source, None, 1).await.unwrap_err();
            assert!(error.ends_with(&format!("no column \"id\"; {told}")), "{error}");
        }
        let (_dir, wide) = file("column,".repeat(100_000));
        let error = read_all(&mut CsvSource::<Item>::new(&wide).require_columns(&["id"]), None, 1).await.unwrap_err();
        assert!(error.contains("the header, in line 1, cannot be read: it is longer than 131072 bytes"), "{error}");
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
