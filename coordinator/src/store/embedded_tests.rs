use tempfile::TempDir;

use super::*;

const WEEK: Duration = Duration::from_secs(604_800);

fn open(dir: &Path) -> Result<EmbeddedStore, StoreError> {
    EmbeddedStore::open(EmbeddedOptions { mark_interval: WEEK, ..EmbeddedOptions::new(dir) })
}

const CLAIM: Claim = Claim { loads: 1, nonce: ratified_protocol::LoadNonce::new(uuid::Uuid::nil()) };

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Opens and loads; gives what was read back.
fn load(dir: &Path) -> Result<(EmbeddedStore, Entries), StoreError> {
    let mut store = open(dir)?;
    let mut entries = Vec::new();
    store.load(&mut |key, value| {
        entries.push((key.to_vec(), value.to_vec()));
        Ok(())
    })?;
    Ok((store, entries))
}

/// Writes and syncs a batch that holds its number, as every batch does, the format, and one record of its own.
fn write(store: &mut EmbeddedStore, number: u64) {
    let mut changes =
        vec![codec::encode_meta(&Meta::Format(1)).unwrap(), codec::encode_meta(&Meta::Batch(number)).unwrap()];
    changes.push(super::super::Change { key: own(number), value: Some(vec![7; 20]) });
    store.write(CLAIM, Batch { number, changes }).unwrap();
    store.sync().unwrap();
}

fn own(number: u64) -> Vec<u8> {
    format!("\x02client-{number}").into_bytes()
}

/// The numbers of the batches whose own record is there.
fn batches(entries: &Entries) -> Vec<u64> {
    (1..100).filter(|n| entries.iter().any(|(key, _)| *key == own(*n))).collect()
}

/// A directory whose journal holds batches 3..=6; 1 and 2 lie in tables.
fn filled() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = load(dir.path()).unwrap();
    write(&mut store, 1);
    write(&mut store, 2);
    drop(store);
    let (mut store, entries) = load(dir.path()).unwrap();
    assert_eq!(batches(&entries), [1, 2]);
    for number in 3..=6 {
        write(&mut store, number);
    }
    dir
}

fn journal_of(dir: &Path) -> PathBuf {
    journal::list(&dir.join("store")).unwrap().pop().unwrap()
}

fn refusal(dir: &Path) -> String {
    load(dir).map(|(_, entries)| batches(&entries)).unwrap_err().to_string()
}

fn mark(dir: &Path, batch: u64) {
    Marker::open(&dir.join("MARK"), WEEK).unwrap().note_now(batch).unwrap();
}

#[test]
fn what_was_synced_is_read_back_and_rests_in_tables() {
    let dir = filled();
    let (store, entries) = load(dir.path()).unwrap();
    assert_eq!(batches(&entries), [1, 2, 3, 4, 5, 6]);
    drop(store);
    let journals = journal::list(&dir.path().join("store")).unwrap();
    assert_eq!(journals.len(), 1, "the journals before are gone");
    assert_eq!(journals[0].metadata().unwrap().len(), 56, "it holds the one record that made the engine flush");
    let (_, entries) = load(dir.path()).unwrap();
    assert_eq!(batches(&entries), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_removed_record_stays_removed() {
    let dir = filled();
    let (mut store, _) = load(dir.path()).unwrap();
    let changes = vec![super::super::Change { key: own(2), value: None }, codec::encode_meta(&Meta::Batch(7)).unwrap()];
    store.write(CLAIM, Batch { number: 7, changes }).unwrap();
    store.sync().unwrap();
    drop(store);
    let (_, entries) = load(dir.path()).unwrap();
    assert_eq!(batches(&entries), [1, 3, 4, 5, 6]);
}

#[test]
fn a_second_opener_is_refused_until_the_first_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path()).unwrap();
    let refusal = open(dir.path()).unwrap_err();
    assert!(matches!(&refusal, StoreError::Locked { path } if path == dir.path()), "{refusal}");
    assert!(refusal.to_string().contains("is in use by another coordinator"), "{refusal}");
    drop(first);
    assert!(open(dir.path()).is_ok());
}

#[test]
fn a_torn_tail_is_cut_and_everything_before_it_is_kept() {
    let dir = filled();
    let path = journal_of(dir.path());
    let whole = fs::read(&path).unwrap();
    let torn = whole[..40].to_vec();
    fs::write(&path, [whole, torn].concat()).unwrap();
    let (_, entries) = load(dir.path()).unwrap();
    assert_eq!(batches(&entries), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_tail_whose_pages_reached_the_disk_out_of_order_is_cut_unless_it_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = load(dir.path()).unwrap();
    write(&mut store, 1);
    let large = super::super::Change { key: own(2), value: Some(vec![7; 20_000]) };
    let changes = vec![codec::encode_meta(&Meta::Batch(2)).unwrap(), large];
    store.write(CLAIM, Batch { number: 2, changes }).unwrap();
    store.sync().unwrap();
    drop(store);
    let path = journal_of(dir.path());
    let mut bytes = fs::read(&path).unwrap();
    bytes[8192..12288].fill(0);
    fs::write(&path, bytes).unwrap();
    assert!(refusal(dir.path()).contains("ends at batch 1, but batch 2"), "the mark knows it was synced");
    mark(dir.path(), 1);
    let (_, entries) = load(dir.path()).unwrap();
    assert_eq!(batches(&entries), [1]);
}

#[test]
fn a_tail_of_which_only_the_sector_it_begins_in_is_old_is_cut_unless_it_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = load(dir.path()).unwrap();
    write(&mut store, 1);
    let path = journal_of(dir.path());
    let used = |bytes: &[u8]| bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let begin = used(&fs::read(&path).unwrap());
    let changes = vec![
        codec::encode_meta(&Meta::Batch(2)).unwrap(),
        super::super::Change { key: own(2), value: Some(vec![7; 500]) },
    ];
    store.write(CLAIM, Batch { number: 2, changes }).unwrap();
    store.sync().unwrap();
    drop(store);
    let mut bytes = fs::read(&path).unwrap();
    let sector_end = begin.next_multiple_of(512);
    assert!(begin < sector_end && sector_end + 512 > used(&bytes), "no whole sector of it is in the middle");
    bytes[begin..sector_end].fill(0);
    fs::write(&path, bytes).unwrap();
    assert!(refusal(dir.path()).contains("ends at batch 1, but batch 2"), "the mark knows it was synced");
    mark(dir.path(), 1);
    let (_, entries) = load(dir.path()).unwrap();
    assert_eq!(batches(&entries), [1]);
}

#[test]
fn damage_in_the_middle_is_refused_with_its_place_and_nothing_is_changed() {
    let dir = filled();
    let path = journal_of(dir.path());
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[0] ^= 0x40;
    fs::write(&path, &damaged).unwrap();
    let refusal = refusal(dir.path());
    assert!(refusal.contains(&format!("{} at byte 0", path.display())), "{refusal}");
    assert_eq!(fs::read(&path).unwrap(), damaged);
    fs::write(&path, &whole).unwrap();
    let (_, entries) = load(dir.path()).unwrap();
    assert_eq!(batches(&entries), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn no_flipped_byte_of_the_journal_loses_anything_silently() {
    let dir = filled();
    let path = journal_of(dir.path());
    let whole = fs::read(&path).unwrap();
    let saved = tempfile::tempdir().unwrap();
    copy_tree(dir.path(), saved.path());
    let mut refused = 0;
    for at in (0..whole.len()).step_by(5) {
        let trial = tempfile::tempdir().unwrap();
        copy_tree(saved.path(), trial.path());
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(journal_of(trial.path()), &damaged).unwrap();
        match load(trial.path()) {
            Ok((_, entries)) => assert_eq!(batches(&entries), [1, 2, 3, 4, 5, 6], "byte {at}"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 50, "{refused}");
}

fn copy_tree(from: &Path, to: &Path) {
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
fn a_missing_acknowledged_tail_is_refused_with_both_numbers_and_the_journal_is_kept() {
    let dir = filled();
    let path = journal_of(dir.path());
    let whole = fs::read(&path).unwrap();
    let short = whole[..whole.len() - 3].to_vec();
    fs::write(&path, &short).unwrap();
    let refusal = refusal(dir.path());
    let aside = dir.path().join("journal-aside");
    let expected = format!(
        "acknowledged data is missing: the store ends at batch 5, but batch 6 had been synced; the journal as it was \
         found is kept in {}",
        aside.display()
    );
    assert_eq!(refusal, expected);
    let kept = fs::read(aside.join(path.file_name().unwrap())).unwrap();
    assert_eq!(kept, short, "as it was before the engine cut it");
    let again = load(dir.path()).unwrap_err();
    assert!(matches!(again, StoreError::Missing { stored: 5, marked: 6, .. }), "{again}");
    assert_eq!(fs::read(aside.join(path.file_name().unwrap())).unwrap(), short, "the oldest copy stays");
}

#[test]
fn the_copy_of_the_journal_goes_with_the_first_sync_after_a_load() {
    let dir = filled();
    mark(dir.path(), 9);
    assert!(refusal(dir.path()).contains("ends at batch 6, but batch 9"));
    mark(dir.path(), 6);
    let (mut store, _) = load(dir.path()).unwrap();
    assert!(dir.path().join("journal-aside").exists());
    write(&mut store, 7);
    assert!(!dir.path().join("journal-aside").exists());
}

#[test]
fn the_mark_is_exact_after_a_clean_end() {
    let dir = filled();
    assert_eq!(mark::read(&dir.path().join("MARK")), Found::Batch(6));
}

#[test]
fn a_mark_that_cannot_be_read_is_no_reason_to_refuse() {
    let dir = filled();
    fs::write(dir.path().join("MARK"), b"nonsense").unwrap();
    let (_, entries) = load(dir.path()).unwrap();
    assert_eq!(batches(&entries), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn files_that_are_gone_are_refused_before_the_engine_takes_them_for_new() {
    for (gone, problem) in [
        ("store", "there is a MARK, but the engine's files are not there"),
        ("store/version", "there is a MARK, but the engine's files are not there"),
        ("store/keyspaces/1/current", "there are tables, but no `current`"),
        ("store/keyspaces/0", "keyspace 0, with the names, is not there"),
    ] {
        let dir = filled();
        let path = dir.path().join(gone);
        if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }.unwrap();
        let refusal = refusal(dir.path());
        assert!(refusal.contains(problem), "{gone}: {refusal}");
    }
}

#[test]
fn damaged_tables_are_refused() {
    let dir = filled();
    let tables = fs::read_dir(dir.path().join("store/keyspaces/1/tables")).unwrap();
    for table in tables {
        let path = table.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        bytes.iter_mut().take(200).for_each(|b| *b ^= 0xff);
        fs::write(&path, bytes).unwrap();
    }
    let refusal = load(dir.path()).unwrap_err();
    assert!(matches!(refusal, StoreError::Damaged { .. }), "{refusal}");
}

#[test]
fn a_store_that_was_never_finished_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("store/keyspaces")).unwrap();
    fs::write(dir.path().join("store/0.jnl"), b"").unwrap();
    let (_, entries) = load(dir.path()).unwrap();
    assert_eq!(entries, []);
    assert!(dir.path().join("store-unfinished/0.jnl").exists());
}

#[test]
fn an_interrupted_start_leaves_a_store_that_loads() {
    let dir = filled();
    drop(load(dir.path()).unwrap());
    drop(load(dir.path()).unwrap());
    let (_, entries) = load(dir.path()).unwrap();
    assert_eq!(batches(&entries), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn any_flipped_bit_of_a_version_in_force_is_refused_before_the_engine_sees_it() {
    let dir = filled();
    drop(load(dir.path()).unwrap());
    let keyspaces = dir.path().join("store/keyspaces");
    for keyspace in fs::read_dir(&keyspaces).unwrap() {
        let keyspace = keyspace.unwrap().path();
        let current = keyspace.join("current");
        let number = u64::from_le_bytes(fs::read(&current).unwrap()[..8].try_into().unwrap());
        for path in [current, keyspace.join(format!("v{number}"))] {
            let whole = fs::read(&path).unwrap();
            for bit in 0..whole.len() * 8 {
                let mut damaged = whole.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                fs::write(&path, &damaged).unwrap();
                let refused = versions::check(&keyspace);
                assert!(matches!(refused, Err(StoreError::Damaged { .. })), "bit {bit} of {}", path.display());
            }
            fs::write(&path, &whole).unwrap();
            assert!(versions::check(&keyspace).is_ok());
        }
    }
}

#[test]
fn another_set_of_tables_than_the_one_in_force_is_refused() {
    let dir = filled();
    drop(load(dir.path()).unwrap());
    let keyspace = dir.path().join("store/keyspaces/1");
    let version_of = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let mut current = fs::read(keyspace.join("current")).unwrap();
    let mut older = fs::read(keyspace.join(format!("v{}", version_of(&current)))).unwrap();
    older.pop();
    fs::write(keyspace.join("v99"), older).unwrap();
    current[..8].copy_from_slice(&99_u64.to_le_bytes());
    fs::write(keyspace.join("current"), current).unwrap();
    assert!(matches!(load(dir.path()), Err(StoreError::Damaged { .. })));
}
