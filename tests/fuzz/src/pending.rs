//! The file of a client's pending transactions.

use ratified::{
    ClientName, TxnId,
    pending::{PendingContents, inspect},
};

fn client() -> ClientName {
    "job.0".parse().expect("a name")
}

/// A whole file.
pub fn pending_file(data: &[u8]) {
    let Ok(read) = inspect::read(data, &client()) else { return };
    let versions = [Some(&b"RATIFPND\x01"[..]), Some(&b"RATIFPND\x02"[..])];
    assert!(versions.contains(&data.get(..9)), "a file of another version is taken");
    assert!(read.end <= data.len(), "more is taken than there is");
    // A tail that was cut must not come back, nor take anything with it.
    assert_eq!(inspect::read(&data[..read.end], &client()).expect("the good part"), read);
    let again = inspect::read(&read.rewritten, &client()).expect("what was written is read");
    assert_eq!((again.end, &again.rewritten), (read.rewritten.len(), &read.rewritten));
    assert_eq!(again.contents, read.contents);
}

/// Files of different lengths, with and without a tail that was never synced.
pub fn pending_seeds() -> Vec<Vec<u8>> {
    let id =
        |last| TxnId::from_bytes([1, 2, 3, 4, 5, 6, 0x70, 8, 0x90, 10, 11, 12, 13, 14, 15, last]).expect("a UUIDv7");
    let mut contents = PendingContents::default();
    let empty = inspect::write(&client(), &contents);
    contents.store =
        Some("09090909-0909-0909-0909-090909090909.3.6ba7b8109dad41d180b400c04fd430c8".parse().expect("a store"));
    contents.entries.insert(id(1), None);
    contents.entries.insert(id(2), Some(b"handle".to_vec()));
    contents.at_least_once.insert(id(3));
    let full = inspect::write(&client(), &contents);
    let torn = [full.clone(), full[full.len() - 40..].to_vec()].concat();
    vec![empty, full, torn]
}
