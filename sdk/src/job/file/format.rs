//! Files that are no text, or text of another encoding: known by how they begin.

use std::path::Path;

use super::FileSourceError;

const UNPACK: &str = "unpack it first";
const TO_UTF8: &str = "convert it to UTF-8 first, with iconv for example";

/// How such a file begins, and what it is. The longer of two with the same start comes first.
const FORMATS: [(&[u8], &str, &str); 11] = [
    (b"\xff\xfe\0\0", "UTF-32 (little-endian)", TO_UTF8),
    (b"\0\0\xfe\xff", "UTF-32 (big-endian)", TO_UTF8),
    (b"\xff\xfe", "UTF-16 (little-endian)", TO_UTF8),
    (b"\xfe\xff", "UTF-16 (big-endian)", TO_UTF8),
    (b"\x1f\x8b\x08", "gzip", UNPACK),
    (b"\x28\xb5\x2f\xfd", "zstd", UNPACK),
    (b"\xfd7zXZ\0", "xz", UNPACK),
    (b"PK\x03\x04", "zip, as a spreadsheet (.xlsx) is", "unpack it, or save the spreadsheet as CSV, first"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old spreadsheet (.xls)", "save it as CSV first"),
    (b"PAR1\x15", "Parquet", "it has no lines"),
    (b"SQLite format 3\0", "an SQLite database", "it has no lines"),
];
/// So many characters tell UTF-16 without a byte order mark.
const UTF16_CHARS: usize = 8;

/// Refuses a file that begins like one of those.
pub(super) fn check(path: &Path, start: &[u8]) -> Result<(), FileSourceError> {
    let marked = FORMATS.iter().find(|(mark, ..)| start.starts_with(mark)).map(|(_, found, advice)| (*found, *advice));
    let is_bzip2 = start.starts_with(b"BZh") && start.get(4..10) == Some(b"1AY&SY");
    let found = marked.or(is_bzip2.then_some(("bzip2", UNPACK))).or_else(|| unmarked_utf16(start));
    match found {
        Some((found, advice)) => Err(FileSourceError::NotText { path: path.to_owned(), found, advice }),
        None => Ok(()),
    }
}

/// Latin text as UTF-16: every other byte is zero.
fn unmarked_utf16(start: &[u8]) -> Option<(&'static str, &'static str)> {
    let chars = start.get(..2 * UTF16_CHARS)?.as_chunks::<2>().0;
    if chars.iter().all(|[first, second]| *first != 0 && *second == 0) {
        return Some(("UTF-16 (little-endian)", TO_UTF8));
    }
    chars.iter().all(|[first, second]| *first == 0 && *second != 0).then_some(("UTF-16 (big-endian)", TO_UTF8))
}
