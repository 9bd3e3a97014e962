use std::collections::BTreeMap;

use bytes::Bytes;
use ratified_core::{
    ClientRecord, DecisionRecord, LastCommittedRecord, OutcomeRecord, ParticipantEntry, ParticipantRecord,
    TransactionRecord,
};
use ratified_protocol::{
    CheckpointId, EndReason, Epoch, Generation, Incarnation, Labels, Outcome, ShortText, TimeoutMs, TxnState, WallTime,
};

use super::*;

const ID: &str = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f";
const UUID: &str = "6ba7b810-9dad-41d1-80b4-00c04fd430c8";

fn client() -> ClientName {
    "c.1".parse().unwrap()
}

fn id() -> TxnId {
    ID.parse().unwrap()
}

fn text(text: &str) -> ShortText {
    text.to_owned().try_into().unwrap()
}

fn client_record() -> Record {
    Record::Client(
        client(),
        ClientRecord {
            epoch: Epoch::new(300),
            incarnations: vec![Incarnation::new(UUID.parse().unwrap())],
            owner: Some(text("me")),
            previous_owner: None,
            evicted_through: Some(id()),
            newest_txn_id: None,
            last_committed: Some(LastCommittedRecord {
                txn_id: id(),
                checkpoint_id: Some(CheckpointId::new(7)),
                end_time: WallTime::from_unix_millis(1_517_363_399_650),
                end_reason: EndReason::PreparedTimeout,
            }),
            forgotten: true,
            written: Uptime::from_millis(129),
            generation: None,
        },
    )
}

fn transaction_record() -> Record {
    Record::Transaction(
        client(),
        id(),
        TransactionRecord {
            state: TxnState::Aborting,
            epoch: Epoch::new(2),
            timeout_ms: TimeoutMs::try_from(60_000).unwrap(),
            prepared_timeout_ms: Some(TimeoutMs::try_from(5).unwrap()),
            require_prepare: true,
            checkpoint_id: Some(CheckpointId::new(9)),
            labels: Labels::try_from(BTreeMap::from([("k".to_owned(), "v".to_owned())])).unwrap(),
            participants: vec![ParticipantEntry { name: "p".parse().unwrap(), at_begin: true, retired: false }],
            begin_time: WallTime::from_unix_millis(1000),
            prepare_time: Some(WallTime::from_unix_millis(2000)),
            begun: Uptime::from_millis(10),
            prepared: Some(Uptime::from_millis(20)),
            decision: Some(DecisionRecord { reason: EndReason::Fenced, number: 4 }),
        },
    )
}

fn outcome_record() -> Record {
    Record::Outcome(
        client(),
        id(),
        OutcomeRecord {
            outcome: Outcome::Aborted,
            end_reason: EndReason::Timeout,
            checkpoint_id: None,
            end_time: WallTime::from_unix_millis(3000),
            ended: Uptime::from_millis(30),
            termination: 5,
        },
    )
}

/// The same client, opened with a generation.
fn client_record_with_generation() -> Record {
    let Record::Client(name, record) = client_record() else { unreachable!() };
    Record::Client(name, ClientRecord { generation: Some(Generation::new(300)), ..record })
}

/// Every kind of record in every version with its key and its value, byte for byte: a change of one of these is a new
/// version.
fn golden() -> Vec<(Record, &'static str, &'static str)> {
    let participant = ParticipantRecord { retired: true, reason: Some(text("gone")) };
    vec![
        (
            client_record_with_generation(),
            "02632e31",
            "02ac0201106ba7b8109dad41d180b400c04fd430c801026d6500010190f2c47a617c3e9d0a0d0f6b1c2e3f00010190f2c47a617c3e\
             9d0a0d0f6b1c2e3f0107e297a0cf942c04018101ac02",
        ),
        (
            client_record(),
            "02632e31",
            "01ac0201106ba7b8109dad41d180b400c04fd430c801026d6500010190f2c47a617c3e9d0a0d0f6b1c2e3f00010190f2c47a617c3e\
             9d0a0d0f6b1c2e3f0107e297a0cf942c04018101",
        ),
        (Record::Participant("p".parse().unwrap(), participant), "0370", "01010104676f6e65"),
        (outcome_record(), "04632e31000190f2c47a617c3e9d0a0d0f6b1c2e3f", "01010100b8171e05"),
        (
            transaction_record(),
            "05632e31000190f2c47a617c3e9d0a0d0f6b1c2e3f",
            "010402e0d403010501010901016b017601017001 00e80701d00f0a01140102 04",
        ),
        (Record::Ack(client(), id(), "p:2".parse().unwrap()), "06632e31000190f2c47a617c3e9d0a0d0f6b1c2e3f703a32", "01"),
        (
            Record::Payload(client(), id(), Bytes::from_static(b"\x00\xff")),
            "07632e31000190f2c47a617c3e9d0a0d0f6b1c2e3f",
            "0100ff",
        ),
    ]
}

fn written(change: &Change) -> (String, String) {
    (hex(&change.key), hex(change.value.as_deref().unwrap_or_default()))
}

#[test]
fn every_record_is_written_as_it_always_was() {
    for (record, key, value) in golden() {
        let change = encode_write(&Write::Put(record.clone())).unwrap();
        assert_eq!(written(&change), (key.to_owned(), value.replace(' ', "")), "{record:?}");
        let read = decode(&change.key, change.value.as_deref().unwrap()).unwrap();
        assert_eq!(read, Entry::Record(record.clone()));
        let delete = encode_write(&Write::Delete(record.key())).unwrap();
        assert_eq!(delete, Change { key: change.key, value: None });
    }
}

#[test]
fn every_meta_record_is_written_as_it_always_was() {
    for (meta, key, value) in [
        (Meta::Format(1), "01666f726d6174", "0101"),
        (Meta::ClusterId(UUID.parse().unwrap()), "01636c75737465724964", "016ba7b8109dad41d180b400c04fd430c8"),
        (Meta::Loads(2), "016c6f616473", "0102"),
        (Meta::Batch(300), "016261746368", "01ac02"),
        (Meta::Uptime(Uptime::from_millis(128)), "01757074696d65", "018001"),
        (
            Meta::History(vec![(2, LoadNonce::new(UUID.parse().unwrap())), (300, LoadNonce::new(Uuid::nil()))]),
            "01686973746f7279",
            "0102026ba7b8109dad41d180b400c04fd430c8ac0200000000000000000000000000000000",
        ),
    ] {
        let change = encode_meta(&meta).unwrap();
        assert_eq!(written(&change), (key.to_owned(), value.to_owned()), "{meta:?}");
        assert_eq!(decode(&change.key, change.value.as_deref().unwrap()).unwrap(), Entry::Meta(meta));
    }
}

#[test]
fn meta_records_are_read_before_all_others() {
    let meta = encode_meta(&Meta::Uptime(Uptime::default())).unwrap().key;
    for (record, ..) in golden() {
        assert!(meta < encode_key(&record.key()), "{record:?}");
    }
}

#[test]
fn what_was_not_written_here_is_refused_with_its_place() {
    let header = encode_key(&Key::Transaction(client(), id()));
    let ack = encode_key(&Key::Ack(client(), id(), "p".parse().unwrap()));
    for (key, value, message) in [
        (vec![], vec![1], "key (empty): the key is empty"),
        (vec![99, 1], vec![1], "key 0x6301: unknown tag 99"),
        (vec![2], vec![1], "client : the name must be"),
        (b"\x01other".to_vec(), vec![1], "meta other: unknown meta record"),
        (b"\x02c".to_vec(), vec![], "client c: the value is empty"),
        (b"\x02c".to_vec(), vec![3, 0], "client c: unknown version 3 of this record; written by a newer program?"),
        (b"\x02c".to_vec(), vec![2, 0], "client c: "),
        (b"\x03p".to_vec(), vec![2, 0], "participant p: unknown version 2 of this record"),
        (b"\x02c".to_vec(), vec![1, 0], "client c: "),
        (b"\x01loads".to_vec(), vec![1, 5, 5], "meta loads: 1 bytes too many"),
        (b"\x05c\x00short".to_vec(), vec![1], "transaction c 0x0073686f7274: the id is short"),
        (b"\x05c".to_vec(), vec![1], "transaction c: no end of the name"),
        ([header.as_slice(), b"x"].concat(), vec![1], &format!("transaction c.1 {ID} x: the key goes on")),
        (ack, vec![1, 1], &format!("ack c.1 {ID} p: an acknowledgement holds nothing")),
        (header, vec![1], &format!("transaction c.1 {ID}: ")),
    ] {
        let refusal = decode(&key, &value).unwrap_err().to_string();
        let expected = format!("damaged or unknown data at {message}");
        assert!(refusal.starts_with(&expected), "{key:?} {value:?}: {refusal}");
    }
}
