//! Random damages: a store that was damaged starts with everything or is refused with a place; it is never wrong, and nothing
//! panics. `TEST_DAMAGES` sets how many, `TEST_SEED` which.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::{
    chain::Key,
    files,
    tests::{Entries, commit, copy_tree, load, put, segments},
};
use crate::store::Change;

/// Numbers that follow from a seed.
struct Random {
    key: Key,
    drawn: u64,
}

impl Random {
    fn new(seed: u64) -> Self {
        let half = seed.to_le_bytes();
        Self { key: Key::new([half, half].concat().try_into().unwrap()), drawn: 0 }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.drawn += 1;
        let hash = self.key.hash([&self.drawn.to_le_bytes()]);
        let number = u64::from_le_bytes(hash.as_bytes()[..8].try_into().unwrap());
        usize::try_from(number % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// A store of several segments after a round of rewriting, as it was a while ago and before the round, and another one.
struct Stores {
    whole: TempDir,
    earlier: TempDir,
    before: TempDir,
    other: TempDir,
    entries: Entries,
}

fn fill(dir: &Path, seed: u64, batches: u64) {
    let mut random = Random::new(seed);
    let (mut store, entries) = load(dir).unwrap();
    let first = u64::try_from(entries.iter().filter(|(key, _)| key.starts_with(b"n")).count()).unwrap() + 1;
    for number in first..first + batches {
        let mut changes = vec![put(format!("n{number:04}"), "")];
        for _ in 0..random.below(6) {
            let key = format!("k{:02}", random.below(40)).into_bytes();
            let value =
                (random.below(4) > 0).then(|| vec![u8::try_from(random.below(256)).unwrap(); random.below(3000)]);
            changes.retain(|change| change.key != key);
            changes.push(Change { key, value });
        }
        commit(&mut store, number, changes, None);
    }
}

impl Stores {
    fn new() -> Self {
        let [whole, earlier, before, other] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
        fill(whole.path(), 1, 60);
        fill(other.path(), 2, 60);
        copy_tree(whole.path(), before.path());
        let (mut store, entries) = load(whole.path()).unwrap();
        let all: Vec<_> = entries.into_iter().map(|(key, value)| put(key, value)).collect();
        let (one, two) = all.split_at(all.len() / 2);
        commit(&mut store, 61, [one, &[put("n0061", "")]].concat(), None);
        commit(&mut store, 62, [two, &[put("n0062", "")]].concat(), Some(61));
        drop(store);
        fill(whole.path(), 3, 99);
        copy_tree(whole.path(), earlier.path());
        fill(whole.path(), 4, 1);
        assert!(segments(whole.path()).len() > 3 && segments(whole.path())[0] > 1, "{:?}", segments(whole.path()));
        let entries = load(whole.path()).unwrap().1;
        Self { whole, earlier, before, other, entries }
    }
}

fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for name in ["STORE", "MARK", "log"].map(|name| dir.join(name)) {
        match name.is_dir() {
            true => found.extend(files::names(&name).unwrap().into_iter().map(|file| {
                let path = name.join(file);
                (path.clone(), fs::read(&path).unwrap_or_default())
            })),
            false => drop(found.insert(name.clone(), fs::read(&name).unwrap_or_default())),
        }
    }
    found
}

/// Changes a file; what was done, for people.
fn change_file(path: &Path, random: &mut Random) -> String {
    let mut bytes = fs::read(path).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
    let what = match random.below(5) {
        0 | 1 => {
            let (at, bit) = (random.below(used), random.below(8));
            bytes[at] ^= 1 << bit;
            format!("flip bit {bit} of byte {at}")
        }
        2 => {
            bytes.truncate(random.below(bytes.len()));
            format!("cut to {}", bytes.len())
        }
        3 => {
            let at = random.below(used) / 512 * 512;
            let end = (at + 512 * (1 + random.below(8))).min(bytes.len());
            bytes[at..end].fill(0);
            format!("zero {at}..{end}")
        }
        _ => {
            let sectors = bytes.len() / 512;
            let (one, two) = (random.below(sectors) * 512, random.below(sectors) * 512);
            (0..512).for_each(|n| bytes.swap((one + n) % used, (two + n) % used));
            format!("swap sectors {one} and {two}")
        }
    };
    fs::write(path, bytes).unwrap();
    format!("{what} of {}", path.display())
}

/// Changes which files there are; what was done, for people.
fn change_files(log: &Path, segments_there: &[PathBuf], stores: &Stores, random: &mut Random) -> String {
    let replay = |from: &Path, to: Option<&PathBuf>, random: &mut Random| {
        let name = super::segment::file_name(*random.one(&segments(from)));
        let to = to.cloned().unwrap_or_else(|| log.join(&name));
        fs::copy(from.join("log").join(&name), &to).unwrap();
        format!("{name} to {}", to.display())
    };
    match random.below(5) {
        0 => {
            let (one, two) = (random.one(segments_there), random.one(segments_there));
            let content = fs::read(one).unwrap();
            fs::copy(two, one).unwrap();
            fs::write(two, content).unwrap();
            format!("swap {} and {}", one.display(), two.display())
        }
        1 => {
            let to = (random.below(2) == 0).then(|| random.one(segments_there));
            format!("foreign {}", replay(stores.other.path(), to, random))
        }
        2 => {
            let stray = log.join(["stray", "00000000000000000003.seg", "core", "1.seg"][random.below(4)]);
            if random.below(2) == 0 {
                fs::create_dir(&stray).unwrap()
            } else {
                fs::write(&stray, "stray").unwrap()
            }
            format!("stray {}", stray.display())
        }
        3 => format!("replayed old segment {}", replay(stores.before.path(), None, random)),
        _ => format!("replayed old segment {}", replay(stores.earlier.path(), None, random)),
    }
}

/// Damages a copy of the store; what was done, for people.
fn damage(dir: &Path, stores: &Stores, random: &mut Random) -> String {
    let log = dir.join("log");
    let there: Vec<_> = segments(dir).into_iter().map(|n| log.join(super::segment::file_name(n))).collect();
    let files: Vec<_> = there.iter().cloned().chain(["STORE", "MARK"].map(|name| dir.join(name))).collect();
    match random.below(10) {
        0..5 => change_file(random.one::<PathBuf>(&files), random),
        5 => {
            let path = random.one(&files);
            fs::remove_file(path).unwrap();
            format!("delete {}", path.display())
        }
        _ => change_files(&log, &there, stores, random),
    }
}

#[test]
fn a_damaged_store_starts_whole_or_is_refused_with_the_place() {
    let seed = from_environment("TEST_SEED", 17);
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let stores = Stores::new();
    let (mut whole, mut refused) = (0, 0);
    for _ in 0..from_environment("TEST_DAMAGES", 300) {
        let dir = tempfile::tempdir().unwrap();
        copy_tree(stores.whole.path(), dir.path());
        let what = damage(dir.path(), &stores, &mut random);
        let found = contents(dir.path());
        match load(dir.path()) {
            Ok((_, entries)) => {
                assert!(entries == stores.entries, "{what}: other records");
                whole += 1;
            }
            Err(error) => {
                let text = error.to_string();
                let has_place = text.contains(&dir.path().display().to_string());
                assert!(has_place || text.starts_with("acknowledged data is missing: "), "{what}: {text}");
                assert!(contents(dir.path()) == found, "{what}: changed, though refused: {text}");
                refused += 1;
            }
        }
    }
    println!("{whole} started whole, {refused} refused");
    assert!(refused > whole && whole > 0, "{refused} refused, {whole} whole");
}
