use std::{
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use ratified_protocol::LoadNonce;
use tempfile::TempDir;
use uuid::Uuid;

use super::{mark::Found, *};
use crate::store::Change;

pub(super) const WEEK: Duration = Duration::from_secs(604_800);
pub(super) const SEGMENT: u64 = 65_536;
pub(super) const CLAIM: Claim = Claim { loads: 1, nonce: LoadNonce::new(Uuid::nil()) };

pub(super) type Entries = Vec<(Vec<u8>, Vec<u8>)>;

pub(super) fn open(dir: &Path) -> Result<EmbeddedStore, StoreError> {
    EmbeddedStore::open(EmbeddedOptions { mark_interval: WEEK, segment_bytes: SEGMENT, ..EmbeddedOptions::new(dir) })
}

/// Opens and loads; gives what was read back.
pub(super) fn load(dir: &Path) -> Result<(EmbeddedStore, Entries), StoreError> {
    let mut store = open(dir)?;
    let mut entries = Vec::new();
    store.load(&mut |key, value| {
        entries.push((key.to_vec(), value.to_vec()));
        Ok(())
    })?;
    Ok((store, entries))
}

pub(super) fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Change {
    Change { key: key.into(), value: Some(value.into()) }
}

pub(super) fn commit(store: &mut EmbeddedStore, number: u64, changes: Vec<Change>, rewritten_since: Option<u64>) {
    store.write(CLAIM, Batch { number, changes, rewritten_since }).unwrap();
    store.sync().unwrap();
}

/// Writes and syncs a batch with one record of its own.
fn write(store: &mut EmbeddedStore, number: u64) {
    write_large(store, number, 20);
}

fn write_large(store: &mut EmbeddedStore, number: u64, bytes: usize) {
    commit(store, number, vec![put(own(number), vec![7; bytes])], None);
}

fn own(number: u64) -> Vec<u8> {
    format!("client-{number}").into_bytes()
}

/// The numbers of the batches whose own record is there.
fn batches(entries: &Entries) -> Vec<u64> {
    (1..100).filter(|n| entries.iter().any(|(key, _)| *key == own(*n))).collect()
}

/// A directory with batches 1..=6 in one segment.
fn filled() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = load(dir.path()).unwrap();
    (1..=6).for_each(|number| write(&mut store, number));
    dir
}

/// A directory with three segments: batches 1..=3, 4..=6 and 7.
fn rolled() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = load(dir.path()).unwrap();
    (1..=7).for_each(|number| write_large(&mut store, number, 19_000));
    drop(store);
    assert_eq!(segments(dir.path()), [1, 4, 7]);
    dir
}

fn path_of(dir: &Path, first: u64) -> PathBuf {
    dir.join(LOG).join(segment::file_name(first))
}

pub(super) fn segments(dir: &Path) -> Vec<u64> {
    let names = files::names(&dir.join(LOG)).unwrap();
    names.iter().filter_map(|name| segment::parse_name(name)).collect()
}

/// Where the n-th batch of a segment begins, if each takes 512 bytes.
fn place_of(nth: usize) -> usize {
    HEADER_BLOCK + (nth - 1) * SECTOR
}

fn refusal(dir: &Path) -> String {
    load(dir).map(|(_, entries)| batches(&entries)).unwrap_err().to_string()
}

fn mark(dir: &Path, batch: u64) {
    Marker::open(&dir.join("MARK"), WEEK).unwrap().note_now(batch).unwrap();
}

fn change_bytes(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

pub(super) fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn what_was_synced_is_read_back_from_files_that_are_the_owners_only() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("data");
    let (mut store, entries) = load(&dir).unwrap();
    assert_eq!(entries, []);
    (1..=6).for_each(|number| write(&mut store, number));
    drop(store);
    let (store, entries) = load(&dir).unwrap();
    assert_eq!(batches(&entries), [1, 2, 3, 4, 5, 6]);
    let _ = store.log.as_ref().unwrap().ahead.take().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let names = |dir: &Path| files::names(dir).unwrap();
    assert_eq!(names(&dir), ["LOCK", "MARK", "STORE", "log"].map(PathBuf::from));
    assert_eq!(names(&dir.join("log")), ["00000000000000000001.seg", "next"].map(PathBuf::from));
    for name in ["LOCK", "MARK", "STORE", "log/00000000000000000001.seg", "log/next"] {
        assert_eq!(mode(&dir.join(name)), 0o600, "{name}");
    }
    assert_eq!((mode(&dir), mode(&dir.join("log"))), (0o700, 0o700));
    assert_eq!(fs::metadata(path_of(&dir, 1)).unwrap().len(), 65_536, "allocated in full");
}

/// Of what is in the old file nobody knows whether it reached the disk.
#[test]
fn a_load_goes_on_in_a_synced_copy_of_the_last_segment() {
    let dir = rolled();
    let inodes = || [1, 4, 7].map(|first| fs::metadata(path_of(dir.path(), first)).unwrap().ino());
    let found = fs::File::open(path_of(dir.path(), 7)).unwrap();
    let before = inodes();
    let (mut store, _) = load(dir.path()).unwrap();
    let after = inodes();
    assert_eq!(after[..2], before[..2], "synced before the next one was begun");
    assert_ne!(after[2], before[2]);
    let old = fs::read(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&found))).unwrap();
    write(&mut store, 8);
    assert_eq!(fs::read(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&found))).unwrap(), old);
}

#[test]
fn a_removed_record_stays_removed() {
    let dir = filled();
    let (mut store, _) = load(dir.path()).unwrap();
    commit(&mut store, 7, vec![Change { key: own(2), value: None }], None);
    drop(store);
    assert_eq!(batches(&load(dir.path()).unwrap().1), [1, 3, 4, 5, 6]);
}

#[test]
fn records_are_visited_in_the_order_of_keys_with_their_last_values() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = load(dir.path()).unwrap();
    commit(&mut store, 1, vec![put("b", "1"), put("a", "2"), put("\x01", "3")], None);
    commit(&mut store, 2, vec![put("b", "4")], None);
    drop(store);
    let expected = [("\x01", "3"), ("a", "2"), ("b", "4")].map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec()));
    assert_eq!(load(dir.path()).unwrap().1, expected);
}

#[test]
fn a_batch_that_does_not_follow_the_last_one_is_refused() {
    let dir = filled();
    let (mut store, _) = load(dir.path()).unwrap();
    let refused = store.write(CLAIM, Batch { number: 9, ..Batch::default() }).unwrap_err();
    assert_eq!(refused.to_string(), "write was refused: batch 9 does not follow batch 6");
}

#[test]
fn a_second_opener_is_refused_until_the_first_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path()).unwrap();
    let refusal = open(dir.path()).unwrap_err();
    assert!(matches!(&refusal, StoreError::Locked { path } if path == dir.path()), "{refusal}");
    drop(first);
    assert!(open(dir.path()).is_ok());
}

#[test]
fn a_torn_tail_is_cut_and_everything_before_it_is_kept() {
    let dir = filled();
    let path = path_of(dir.path(), 1);
    change_bytes(&path, |bytes| bytes.copy_within(place_of(1)..place_of(1) + 300, place_of(7) + 100));
    let (mut store, entries) = load(dir.path()).unwrap();
    assert_eq!(batches(&entries), [1, 2, 3, 4, 5, 6]);
    assert!(fs::read(&path).unwrap()[place_of(7)..].iter().all(|byte| *byte == 0), "in a copy without it");
    write(&mut store, 7);
    drop(store);
    assert_eq!(batches(&load(dir.path()).unwrap().1), [1, 2, 3, 4, 5, 6, 7]);
}

/// Sectors of one batch reach the disk in any order.
#[test]
fn a_tail_of_which_any_sectors_are_missing_is_cut_unless_it_was_acknowledged() {
    for lost in [0..512, 8192..12_288, 19_968..20_480, 0..20_000] {
        let dir = tempfile::tempdir().unwrap();
        let (mut store, _) = load(dir.path()).unwrap();
        write(&mut store, 1);
        write_large(&mut store, 2, 20_000);
        drop(store);
        let begin = place_of(2);
        change_bytes(&path_of(dir.path(), 1), |bytes| bytes[begin + lost.start..begin + lost.end].fill(0));
        let expected =
            "acknowledged data is missing: the store ends at batch 1, but batch 2 had been synced; nothing was changed";
        assert_eq!(refusal(dir.path()), expected, "{lost:?}");
        mark(dir.path(), 1);
        assert_eq!(batches(&load(dir.path()).unwrap().1), [1], "{lost:?}");
    }
}

#[test]
fn damage_in_the_middle_is_refused_with_its_place_and_nothing_is_changed() {
    let dir = filled();
    let path = path_of(dir.path(), 1);
    let whole = fs::read(&path).unwrap();
    for (bit_of, text) in [
        (place_of(3) + 90, "at byte 5120: batch 3 cannot be read, but batch 4 follows at byte 5632"),
        (place_of(3) + 56, "at byte 5120: batch 3 lies where batch 3 is expected"),
        (3, "at byte 0: the header block is not what was written"),
    ] {
        let mut damaged = whole.clone();
        damaged[bit_of] ^= 0x40;
        fs::write(&path, &damaged).unwrap();
        mark(dir.path(), 0);
        assert_eq!(refusal(dir.path()), format!("damaged or unknown data at {} {text}", path.display()));
        assert_eq!(fs::read(&path).unwrap(), damaged);
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(batches(&load(dir.path()).unwrap().1), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn the_mark_is_exact_after_a_clean_end_and_one_that_cannot_be_read_is_no_reason_to_refuse() {
    let dir = filled();
    assert_eq!(mark::read(&dir.path().join("MARK")), Found::Batch(6));
    mark(dir.path(), 9);
    assert!(refusal(dir.path()).contains("ends at batch 6, but batch 9"));
    fs::write(dir.path().join("MARK"), b"nonsense").unwrap();
    assert_eq!(batches(&load(dir.path()).unwrap().1), [1, 2, 3, 4, 5, 6]);
    fs::remove_file(dir.path().join("MARK")).unwrap();
    assert_eq!(batches(&load(dir.path()).unwrap().1), [1, 2, 3, 4, 5, 6]);
}

/// Without a mark: it would tell, but it may be gone too.
#[test]
fn parts_that_are_gone_are_named_and_never_an_empty_start() {
    const PUT_BACK: &str = "put it back from a copy of this store";
    for (gone, place, problem) in [
        ("STORE", "STORE", format!("it is missing, and there is a log; {PUT_BACK}")),
        ("log", "log", format!("the directory of segments is missing; {PUT_BACK}")),
        ("log/*", "log", "no segment is there; put them back from a copy of this store".to_owned()),
        ("log/00000000000000000001.seg", "log/00000000000000000001.seg", format!("the segment is missing; {PUT_BACK}")),
        ("log/00000000000000000004.seg", "log/00000000000000000004.seg", format!("the segment is missing; {PUT_BACK}")),
        ("log/00000000000000000007.seg", "log/00000000000000000007.seg", format!("the segment is missing; {PUT_BACK}")),
    ] {
        let dir = rolled();
        fs::remove_file(dir.path().join("MARK")).unwrap();
        let path = dir.path().join(gone.trim_end_matches("/*"));
        if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }.unwrap();
        if gone.ends_with('*') {
            fs::create_dir(&path).unwrap();
        }
        let place = dir.path().join(place);
        assert_eq!(refusal(dir.path()), format!("damaged or unknown data at {}: {problem}", place.display()), "{gone}");
    }
    // Of a store with one segment, too.
    for gone in ["STORE", "log/00000000000000000001.seg"] {
        let dir = filled();
        fs::remove_file(dir.path().join("MARK")).unwrap();
        fs::remove_file(dir.path().join(gone)).unwrap();
        assert!(refusal(dir.path()).contains("put"), "{gone}");
    }
    let dir = filled();
    fs::remove_file(dir.path().join("STORE")).unwrap();
    fs::remove_dir_all(dir.path().join("log")).unwrap();
    assert!(refusal(dir.path()).contains("/STORE: it is missing"), "the mark alone says that there was a store");
}

#[test]
fn strange_files_and_directories_among_the_segments_are_named() {
    for stray in ["stray", "1.seg", "00000000000000000009.seg", "next"] {
        let dir = filled();
        let path = dir.path().join("log").join(stray);
        let _ = fs::remove_file(&path);
        fs::create_dir(&path).unwrap();
        let problem = "nothing that the store has made has this name; move it away";
        assert_eq!(refusal(dir.path()), format!("damaged or unknown data at {}: {problem}", path.display()));
    }
    let dir = filled();
    let path = dir.path().join("log/notes.txt");
    fs::write(&path, "mine").unwrap();
    assert!(refusal(dir.path()).contains(&path.display().to_string()));
    assert_eq!(fs::read(&path).unwrap(), b"mine");
}

#[test]
fn a_foreign_directory_is_refused_and_left_as_it_is() {
    for (found, is_dir) in [("photos", true), ("store", true), ("log", true), ("STORE.unfinished", false)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(found);
        if is_dir {
            fs::create_dir(&path).unwrap()
        } else {
            fs::write(&path, "mine").unwrap()
        }
        let expected = format!(
            "{} is not empty, and no store: there is {found}; name another directory in data_dir, or an empty one",
            dir.path().display()
        );
        assert_eq!(open(dir.path()).unwrap_err().to_string(), expected);
        assert_eq!(files::names(dir.path()).unwrap(), [PathBuf::from(found)], "not even a lock");
    }
    // Where a lock came into being first, nothing else does.
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("LOCK"), "").unwrap();
    fs::write(dir.path().join("photo"), "mine").unwrap();
    assert!(refusal(dir.path()).contains("there is photo"));
    assert_eq!(files::names(dir.path()).unwrap(), ["LOCK", "photo"].map(PathBuf::from));
}

#[test]
fn an_identity_that_is_damaged_or_of_a_newer_format_is_refused() {
    let dir = filled();
    let path = dir.path().join("STORE");
    let whole = fs::read(&path).unwrap();
    for (at, problem) in
        [(30, "it is not what was written"), (4, "format 5, this program reads 1; written by a newer one?")]
    {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        fs::write(&path, bytes).unwrap();
        assert_eq!(refusal(dir.path()), format!("damaged or unknown data at {}: {problem}", path.display()));
    }
}

#[test]
fn what_an_interrupted_first_start_leaves_is_no_obstacle_unless_a_batch_is_in_it() {
    let dir = filled();
    let made = fs::read(path_of(dir.path(), 1)).unwrap();
    let unused = [&made[..HEADER_BLOCK], &vec![0; 61_440]].concat();
    for (name, content) in [
        ("LOCK", &b""[..]),
        ("STORE.unfinished", b"RS"),
        ("log/next", b"\0\0"),
        ("log/00000000000000000001.seg", &unused),
    ] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("LOCK"), "").unwrap();
        fs::create_dir(dir.path().join("log")).unwrap();
        fs::write(dir.path().join(name), content).unwrap();
        let (mut store, entries) = load(dir.path()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(entries, []);
        write(&mut store, 1);
        drop(store);
        assert_eq!(batches(&load(dir.path()).unwrap().1), [1], "{name}");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("LOCK"), "").unwrap();
    fs::create_dir(dir.path().join("log")).unwrap();
    fs::write(path_of(dir.path(), 1), made).unwrap();
    assert!(refusal(dir.path()).contains("/STORE: it is missing, and there is a log"));
}

/// Whatever a caller has written: it does not know the key.
#[test]
fn a_payload_that_looks_like_a_batch_or_a_header_is_a_payload() {
    let mut batch = Vec::new();
    let place = Place { number: 3, ..Place::default() };
    format::encode_batch(&Key::new([1; 16]), &place, &[put("client-99", "x")], &mut batch);
    let header = SegmentHeader { cluster_id: Uuid::nil(), first: 1, bytes: SEGMENT, chain: Chain::default() };
    let block = format::encode_header(&Key::new([1; 16]), &header);
    for payload in [batch.as_slice(), &block, b"RBAT\x01\0\0\0", b"FJL\x03"] {
        // Over every place at which a batch could begin.
        let value: Vec<u8> = payload.iter().copied().cycle().take(4096 + payload.len()).collect();
        let dir = tempfile::tempdir().unwrap();
        let (mut store, _) = load(dir.path()).unwrap();
        write(&mut store, 1);
        let filler = |n: usize| put(format!("z{n}"), value[n % payload.len()..].to_vec());
        commit(&mut store, 2, std::iter::once(put(own(2), value.clone())).chain((0..4).map(filler)).collect(), None);
        drop(store);
        assert_eq!(batches(&load(dir.path()).unwrap().1), [1, 2]);
        change_bytes(&path_of(dir.path(), 1), |bytes| bytes[place_of(2)..place_of(3)].fill(0));
        mark(dir.path(), 1);
        assert_eq!(batches(&load(dir.path()).unwrap().1), [1], "a torn tail is one whatever is in it");
    }
}

#[test]
fn segments_follow_each_other_and_each_is_twice_as_long_up_to_the_bound() {
    let dir = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions { segment_bytes: 4 << 20, ..EmbeddedOptions::new(dir.path()) };
    let mut store = EmbeddedStore::open(options).unwrap();
    store.load(&mut |_, _| Ok(())).unwrap();
    (1..=12).for_each(|number| write_large(&mut store, number, 900_000));
    drop(store);
    let lengths: Vec<_> =
        segments(dir.path()).iter().map(|n| fs::metadata(path_of(dir.path(), *n)).unwrap().len()).collect();
    assert_eq!(segments(dir.path()), [1, 2, 4, 8, 12]);
    assert_eq!(lengths, [1 << 20, 2 << 20, 4 << 20, 4 << 20, 4 << 20]);
    assert_eq!(batches(&load(dir.path()).unwrap().1), (1..=12).collect::<Vec<_>>());
}

#[test]
fn a_batch_longer_than_a_segment_has_one_of_its_own() {
    let dir = filled();
    let (mut store, _) = load(dir.path()).unwrap();
    write_large(&mut store, 7, 300_000);
    write(&mut store, 8);
    drop(store);
    assert_eq!(segments(dir.path()), [1, 7, 8]);
    assert_eq!(fs::metadata(path_of(dir.path(), 7)).unwrap().len(), 305_152);
    assert_eq!(batches(&load(dir.path()).unwrap().1), [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn a_crash_between_two_segments_leaves_a_log_that_loads() {
    let dir = rolled();
    // The new segment was there, and the end of the old one was not yet written.
    let used = HEADER_BLOCK + 3 * 19_456;
    change_bytes(&path_of(dir.path(), 4), |bytes| bytes[used..].fill(0));
    change_bytes(&path_of(dir.path(), 7), |bytes| bytes[HEADER_BLOCK..].fill(0));
    mark(dir.path(), 6);
    let (mut store, entries) = load(dir.path()).unwrap();
    assert_eq!(batches(&entries), [1, 2, 3, 4, 5, 6]);
    write(&mut store, 7);
    drop(store);
    assert_eq!(batches(&load(dir.path()).unwrap().1), [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_torn_batch_that_is_not_in_the_last_segment_is_damage() {
    let dir = rolled();
    let last = HEADER_BLOCK + 2 * 19_456;
    change_bytes(&path_of(dir.path(), 4), |bytes| bytes[last..].fill(0));
    mark(dir.path(), 0);
    let (path, next) = (path_of(dir.path(), 4), path_of(dir.path(), 7));
    let problem = format!("at byte {last}: batch 6 cannot be read, but {} follows", next.display());
    assert_eq!(refusal(dir.path()), format!("damaged or unknown data at {} {problem}", path.display()));
}

#[test]
fn segments_of_another_place_or_store_are_refused() {
    let dir = rolled();
    let (one, four) = (path_of(dir.path(), 1), path_of(dir.path(), 4));
    let spare = dir.path().join("spare");
    let swap = || {
        fs::rename(&one, &spare).unwrap();
        fs::rename(&four, &one).unwrap();
        fs::rename(&spare, &four).unwrap();
    };
    swap();
    let problem = "at byte 0: the segment of this name begins with batch 4";
    assert_eq!(refusal(dir.path()), format!("damaged or unknown data at {} {problem}", one.display()));
    swap();
    let other = rolled();
    fs::copy(path_of(other.path(), 4), &four).unwrap();
    let Found::Batch(_) = mark::read(&other.path().join("MARK")) else { panic!("no mark") };
    assert!(refusal(dir.path()).contains("at byte 0: the segment belongs to store "));
    fs::copy(other.path().join("STORE"), dir.path().join("STORE")).unwrap();
    assert!(refusal(dir.path()).contains("00000000000000000001.seg at byte 0: the segment belongs to store "));
    let dir = rolled();
    change_bytes(&path_of(dir.path(), 4), |bytes| bytes.truncate(50_000));
    assert!(refusal(dir.path()).contains("at byte 50000: the file has 50000 bytes, it was made with 65536"));
}

/// Writes everything of `rolled` again in batches 8..=14.
fn rewrite(store: &mut EmbeddedStore) {
    for number in 8..=14 {
        let since = (number == 14).then_some(8);
        commit(store, number, vec![put(own(number - 7), vec![9; 19_000])], since);
    }
}

#[test]
fn old_segments_go_when_everything_was_written_again_and_not_before() {
    let dir = rolled();
    let (mut store, _) = load(dir.path()).unwrap();
    let before = store.status.log_bytes();
    for number in 8..=13 {
        commit(&mut store, number, vec![put(own(number - 7), vec![9; 19_000])], None);
        assert!(segments(dir.path()).starts_with(&[1, 4, 7]), "{number}");
    }
    // The round began with batch 8, in the segment that begins with 7.
    commit(&mut store, 14, vec![put(own(7), vec![9; 19_000])], Some(8));
    assert!(store.status.log_bytes() < before + 4 * 19_456);
    drop(store);
    assert_eq!(segments(dir.path()), [7, 10, 13]);
    let (_, entries) = load(dir.path()).unwrap();
    assert_eq!(entries, (1..=7).map(|n| (own(n), vec![9; 19_000])).collect::<Vec<_>>());
}

#[test]
fn segments_that_a_crash_kept_from_being_removed_go_later_and_change_nothing() {
    let dir = rolled();
    let saved = tempfile::tempdir().unwrap();
    copy_tree(dir.path(), saved.path());
    let (mut store, _) = load(dir.path()).unwrap();
    rewrite(&mut store);
    drop(store);
    fs::copy(path_of(saved.path(), 4), path_of(dir.path(), 4)).unwrap();
    let (mut store, entries) = load(dir.path()).unwrap();
    assert_eq!(entries, (1..=7).map(|n| (own(n), vec![9; 19_000])).collect::<Vec<_>>());
    write(&mut store, 15);
    drop(store);
    assert_eq!(segments(dir.path()), [7, 10, 13]);
    // One that is not next to the others was put there by somebody.
    fs::copy(path_of(saved.path(), 1), path_of(dir.path(), 1)).unwrap();
    assert!(refusal(dir.path()).contains("/00000000000000000004.seg: the segment is missing"));
}

#[test]
fn the_first_segment_that_is_needed_is_missed_after_a_round_too() {
    let dir = rolled();
    let (mut store, _) = load(dir.path()).unwrap();
    rewrite(&mut store);
    drop(store);
    fs::remove_file(path_of(dir.path(), 7)).unwrap();
    assert!(refusal(dir.path()).contains("/00000000000000000007.seg: the segment is missing"));
}
