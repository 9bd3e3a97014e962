//! A copy of the workspace in which the defects of the state machine are seeded: the product has none.

use std::{
    collections::BTreeMap,
    error::Error,
    fs, io,
    path::{Path, PathBuf},
};

use toml::{Table, Value};

use crate::defects::{Defect, seed};

/// Where the copied packages are, below the copy's root. Their paths must differ from the originals': Cargo tells
/// packages of workspaces apart by these, and both keep what they build in one directory.
const TREE: &str = "tree";
/// What the copy has in place of the workspace's files, or beside them.
const OVERLAY: &str = "tests/simulation/overlay";
const CORE: &str = "coordinator/core/src/lib.rs";

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Brings the copy in `into` of the workspace in `root` up to date. What is as it should be is left alone, so that a
/// second build has little to do.
///
/// # Errors
/// A defect does not fit the sources, or a file cannot be read or written.
pub fn make(root: &Path, into: &Path, defects: &[Defect]) -> Result<(), Box<dyn Error>> {
    let mut manifest: Table = fs::read_to_string(root.join("Cargo.toml"))?.parse()?;
    let mut files = Files::new();
    for member in move_members(&mut manifest) {
        read_below(root, Path::new(&member), &mut files)?;
    }
    seed_files(defects, &mut files)?;
    let overlay: Vec<_> = files.extract_if(.., |path, _| path.starts_with(OVERLAY)).collect();
    for (path, content) in overlay {
        files.insert(path.strip_prefix(OVERLAY)?.to_owned(), content);
    }
    write_all(&into.join(TREE), &files)?;
    write(&into.join("Cargo.toml"), manifest.to_string().as_bytes())?;
    write(&into.join("Cargo.lock"), &fs::read(root.join("Cargo.lock"))?)?;
    Ok(())
}

/// Makes the manifest name the packages where the copy has them, and returns where they are in the workspace.
fn move_members(manifest: &mut Table) -> Vec<String> {
    let Some(Value::Table(workspace)) = manifest.get_mut("workspace") else { return Vec::new() };
    workspace.remove("exclude");
    let dependencies = workspace.get_mut("dependencies").and_then(Value::as_table_mut);
    for (_, dependency) in dependencies.into_iter().flatten() {
        if let Some(Value::String(path)) = dependency.get_mut("path") {
            *path = format!("{TREE}/{path}");
        }
    }
    let mut members = Vec::new();
    for member in workspace.get_mut("members").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::String(path) = member {
            members.push(path.clone());
            *path = format!("{TREE}/{path}");
        }
    }
    members
}

fn read_below(root: &Path, directory: &Path, files: &mut Files) -> io::Result<()> {
    for entry in fs::read_dir(root.join(directory))? {
        let entry = entry?;
        let name = entry.file_name();
        let path = directory.join(&name);
        if entry.file_type()?.is_file() {
            files.insert(path, fs::read(entry.path())?);
        } else if entry.file_type()?.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
            read_below(root, &path, files)?;
        }
    }
    Ok(())
}

fn seed_files(defects: &[Defect], files: &mut Files) -> Result<(), Box<dyn Error>> {
    let mut sources = BTreeMap::new();
    let named = defects.iter().flat_map(|defect| &defect.changes).map(|change| change.file.as_str());
    for file in named.chain([CORE]) {
        if let Some(content) = files.get(Path::new(file)) {
            sources.insert(file.to_owned(), String::from_utf8(content.clone())?);
        }
    }
    seed(defects, &mut sources).map_err(|misfits| {
        let lines: Vec<_> = misfits.iter().map(ToString::to_string).collect();
        lines.join("\n")
    })?;
    sources.entry(CORE.to_owned()).or_default().push_str("\npub mod seeded;\n");
    files.extend(sources.into_iter().map(|(file, text)| (file.into(), text.into_bytes())));
    Ok(())
}

/// Writes these files and removes all others.
fn write_all(into: &Path, files: &Files) -> io::Result<()> {
    let mut there = Files::new();
    if into.exists() {
        read_below(into, Path::new(""), &mut there)?;
    }
    for path in there.keys().filter(|path| !files.contains_key(*path)) {
        fs::remove_file(into.join(path))?;
    }
    files.iter().try_for_each(|(path, content)| write(&into.join(path), content))
}

/// Writes a file unless it is as it should be: Cargo builds anew what was written later.
fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defects::Change;

    const MANIFEST: &str = "[workspace]\nmembers = [\"coordinator/core\", \"tests/simulation\"]\nexclude = [\"fuzz\"]\n\n\
                            [workspace.dependencies]\nratified-core = { path = \"coordinator/core\" }\nserde = \"1\"\n";

    fn workspace() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in [
            ("Cargo.toml", MANIFEST),
            ("Cargo.lock", "locked"),
            (CORE, "mod rules;\n"),
            ("coordinator/core/src/rules.rs", "fn rule() { check(); }"),
            ("coordinator/core/target/built", "is left behind"),
            ("tests/simulation/src/which.rs", "none"),
            ("tests/simulation/overlay/tests/simulation/src/which.rs", "all"),
        ] {
            write(&root.path().join(path), content.as_bytes()).unwrap();
        }
        root
    }

    fn defect(find: &str) -> Defect {
        let file = "coordinator/core/src/rules.rs".to_owned();
        let change = Change { file, find: find.to_owned(), put: "if !SEEDED { FOUND }".to_owned() };
        Defect { name: "A".to_owned(), breaks: String::new(), seeds: 1, model_checking: false, changes: vec![change] }
    }

    fn files(copy: &Path) -> Vec<(String, String)> {
        let mut files = Files::new();
        read_below(copy, Path::new(""), &mut files).unwrap();
        files.into_iter().map(|(path, is)| (path.display().to_string(), String::from_utf8(is).unwrap())).collect()
    }

    #[test]
    fn a_copy_has_the_packages_elsewhere_the_defects_and_the_overlay() {
        let (root, copy) = (workspace(), tempfile::tempdir().unwrap());
        make(root.path(), copy.path(), &[defect("check();")]).unwrap();
        let mut files = files(copy.path());
        let (_, manifest) = files.remove(1);
        let manifest: Table = manifest.parse().unwrap();
        assert_eq!(
            manifest,
            MANIFEST
                .replace("\"coordinator", "\"tree/coordinator")
                .replace("\"tests", "\"tree/tests")
                .replace("exclude = [\"fuzz\"]\n", "")
                .parse()
                .unwrap()
        );
        let expected = [
            ("Cargo.lock", "locked"),
            ("tree/coordinator/core/src/lib.rs", "mod rules;\n\npub mod seeded;\n"),
            ("tree/coordinator/core/src/rules.rs", "fn rule() { if !crate::seeded::is_on(0) { check(); } }"),
            ("tree/tests/simulation/src/which.rs", "all"),
        ];
        assert_eq!(files, expected.map(|(path, content)| (path.to_owned(), content.to_owned())));
    }

    #[test]
    fn a_second_copy_writes_what_has_changed_and_removes_what_is_gone() {
        let (root, copy) = (workspace(), tempfile::tempdir().unwrap());
        make(root.path(), copy.path(), &[defect("check();")]).unwrap();
        let lib = copy.path().join(TREE).join(CORE);
        let before = fs::metadata(&lib).unwrap().modified().unwrap();
        fs::remove_file(root.path().join("tests/simulation/src/which.rs")).unwrap();
        fs::remove_dir_all(root.path().join("tests/simulation/overlay")).unwrap();
        write(&root.path().join("coordinator/core/src/rules.rs"), b"fn rule() { check(); more(); }").unwrap();
        make(root.path(), copy.path(), &[defect("more();")]).unwrap();
        let names: Vec<_> = files(copy.path()).into_iter().map(|(path, _)| path).collect();
        let (rules, lock) = ("tree/coordinator/core/src/rules.rs", "Cargo.lock");
        assert_eq!(names, [lock, "Cargo.toml", "tree/coordinator/core/src/lib.rs", rules]);
        assert_eq!(
            fs::read_to_string(copy.path().join(rules)).unwrap(),
            "fn rule() { check(); if !crate::seeded::is_on(0) { more(); } }"
        );
        assert_eq!(fs::metadata(&lib).unwrap().modified().unwrap(), before, "it was as it should be");
    }

    #[test]
    fn a_defect_that_does_not_fit_is_named() {
        let (root, copy) = (workspace(), tempfile::tempdir().unwrap());
        let error = make(root.path(), copy.path(), &[defect("gone();")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "A: coordinator/core/src/rules.rs does not have it: `gone();`; bring its entry in \
             tests/simulation/defects.toml up to date"
        );
    }
}
