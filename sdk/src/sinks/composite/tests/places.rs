//! Members that would meet are refused, by whatever path they are reached.

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use super::*;
use crate::sinks::file::FileSink;

fn in_both(first: &Path, second: &Path) -> Result<Composite<u64>, CompositeError> {
    let sink = |root: &Path, target: &str| FileSink::json_lines(root, target.parse().unwrap()).build().unwrap();
    Composite::builder()
        .member("first", sink(first, "a"), |n: &u64, rows: &mut Vec<u64>| rows.push(*n))
        .member("second", sink(second, "b"), |n: &u64, rows: &mut Vec<u64>| rows.push(*n))
        .build()
}

#[test]
fn two_members_in_one_directory_are_refused_however_it_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("real")).unwrap();
    symlink(root.join("real"), root.join("link")).unwrap();
    // Neither of the last two exists: what does not is below what does.
    for (first, second, place) in [
        ("real", "real", "real"),
        ("real", "real/", "real"),
        ("real", "./link/.", "real"),
        ("real/new", "link/new/", "real/new"),
        ("later", "real/../later", "later"),
    ] {
        let (first, second) = (root.join(first), PathBuf::from(format!("{}/{second}", root.display())));
        let told = in_both(&first, &second).map(drop).unwrap_err().to_string();
        let directory = root.join(place);
        let expected = format!(
            "first and second are both in directory {}: give each member a place of its own",
            directory.display()
        );
        assert_eq!(told, expected, "{}", second.display());
    }
    in_both(&root.join("real"), &root.join("other")).unwrap();
}

#[tokio::test]
async fn a_link_that_is_turned_after_the_composite_was_built_is_met_when_it_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("real"), dir.path().join("link"));
    let sink = in_both(&real, &link).unwrap();
    std::fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    let refused = sink.committer().await.map(drop).unwrap_err();
    assert!(refused.to_string().contains("first and second are both in directory"), "{refused}");
}

#[test]
fn a_composite_in_a_composite_is_in_the_places_of_its_members() {
    let dir = tempfile::tempdir().unwrap();
    let inner = in_both(&dir.path().join("a"), &dir.path().join("b")).unwrap();
    let sink = FileSink::json_lines(dir.path().join("b"), "c".parse().unwrap()).build().unwrap();
    let outer = Composite::builder()
        .member("inner", inner, |n: &u64, rows: &mut Vec<u64>| rows.push(*n))
        .member("outer", sink, |n: &u64, rows: &mut Vec<u64>| rows.push(*n))
        .build();
    assert!(matches!(outer, Err(CompositeError::SamePlace { .. })));
}
