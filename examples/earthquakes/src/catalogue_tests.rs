use std::io::Write;

use super::*;

fn file(text: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text).unwrap();
    file
}

fn catalogue(rows: &[&str]) -> tempfile::NamedTempFile {
    file(format!("{HEADER}\r\n{}", rows.concat()).as_bytes())
}

fn all(catalogue: &mut Catalogue) -> Vec<Row> {
    std::iter::from_fn(|| catalogue.next_row().unwrap()).collect()
}

fn summary(rows: &[Row]) -> Vec<String> {
    let name = |row: &Row| match row {
        Row::Kept(event) => event.event.id.clone(),
        Row::Filtered => "filtered".to_owned(),
        Row::Rejected(reject) => format!("{}:{}", reject.line, reject.fault.kind()),
    };
    rows.iter().map(name).collect()
}

const ROWS: [&str; 8] = [
    "100,a,1.5,ml,0,0,0,x,reviewed,us,1\r\n",
    "200,b,0.5,ml,0,0,0,x,reviewed,us,1\r\n",
    "\r\n",
    "300,a,2,ml,0,0,0,x,reviewed,us,1\n",
    "150,c,2,ml,0,0,0,x,reviewed,us,1\n",
    "300,d,2,ml,0,0,0,\"x,reviewed,us,1\n",
    "400,e,2,ml,0,0,0,x,reviewed,us,1\n",
    "500,f,2,ml,0,0,0,\"x, y\",reviewed,us,1",
];

#[test]
fn every_line_becomes_one_row_and_is_counted_once() {
    let file = catalogue(&ROWS);
    let mut read = Catalogue::open(file.path()).unwrap();
    let expected = ["a", "filtered", "4:column-count", "5:duplicate-id", "6:time-goes-back", "7:open-quote", "e", "f"];
    assert_eq!(summary(&all(&mut read)), expected);
    assert_eq!(read.position().tally, Tally { lines: 8, kept: 3, filtered: 1, rejected: 4 });
}

#[test]
fn from_any_position_the_rest_is_the_same() {
    let file = catalogue(&ROWS);
    let mut whole = Catalogue::open(file.path()).unwrap();
    let mut positions = vec![whole.position()];
    let mut rows = Vec::new();
    while let Some(row) = whole.next_row().unwrap() {
        rows.push(row);
        positions.push(whole.position());
    }
    for (taken, position) in positions.iter().enumerate() {
        let mut resumed = Catalogue::resume(file.path(), position).unwrap();
        assert_eq!(all(&mut resumed), rows[taken..]);
        assert_eq!(resumed.position(), whole.position());
    }
}

#[test]
fn a_catalogue_that_changed_before_the_position_is_refused() {
    let before = catalogue(&ROWS);
    let mut read = Catalogue::open(before.path()).unwrap();
    read.next_row().unwrap();
    read.next_row().unwrap();
    let changed = catalogue(&["100,a,1.6,ml,0,0,0,x,reviewed,us,1\r\n", ROWS[1], ROWS[2]]);
    let error = Catalogue::resume(changed.path(), &read.position()).unwrap_err();
    assert!(matches!(error, CatalogueError::Changed { lines: 2, .. }), "{error}");
    let cut = catalogue(&ROWS[..1]);
    assert!(matches!(Catalogue::resume(cut.path(), &read.position()), Err(CatalogueError::Changed { .. })));
    let grown = catalogue(&[&ROWS[..], &["\n600,g,2,ml,0,0,0,x,reviewed,us,1\n"]].concat());
    assert_eq!(all(&mut Catalogue::resume(grown.path(), &read.position()).unwrap()).len(), 7);
}

#[test]
fn an_endless_line_spoils_itself_only() {
    let long = format!("{}\n", "9".repeat(3 * MAX_LINE_BYTES));
    let longest = format!("{}\r\n", "9".repeat(MAX_LINE_BYTES));
    let file = catalogue(&[&long, &longest, ROWS[0], &long]);
    let mut read = Catalogue::open(file.path()).unwrap();
    assert_eq!(summary(&all(&mut read)), ["2:too-long", "3:column-count", "a", "5:too-long"]);
    let end = read.position();
    assert_eq!(Catalogue::resume(file.path(), &end).unwrap().position(), end);
}

#[test]
fn something_else_than_a_catalogue_is_refused_at_its_header() {
    let invisible = format!("{HEADER}\u{a0}\n");
    for (text, told) in [
        (&b""[..], "the first line is \"\", and not \"".to_owned()),
        (b"time,id\n", "the first line is \"time,id\", and not \"".to_owned()),
        (b"\xff\xfd\n", "the first line is \"\u{fffd}\u{fffd}\", and not \"".to_owned()),
        (invisible.as_bytes(), format!("the first line is \"{HEADER}\\u{{a0}}\", and not \"{HEADER}\"")),
    ] {
        let error = Catalogue::open(file(text).path()).unwrap_err();
        assert!(matches!(error, CatalogueError::Header { .. }) && error.to_string().contains(&told), "{error}");
    }
    for header in [format!("\u{feff}{HEADER}\n"), format!("{HEADER}\r\n"), format!("{HEADER}\r")] {
        assert!(Catalogue::open(file(header.as_bytes()).path()).is_ok(), "{header:?}");
    }
    assert!(matches!(Catalogue::open(Path::new("/nowhere")), Err(CatalogueError::File(FileSourceError::Io { .. }))));
}

#[test]
fn the_catalogue_that_comes_with_the_example_is_sound() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/earthquakes.csv");
    let mut read = Catalogue::open(&path).unwrap();
    assert_eq!(all(&mut read).len(), 1707);
    assert_eq!(read.position().tally, Tally { lines: 1707, kept: 996, filtered: 711, rejected: 0 });
}
