//! Keys and values of the coordinator's store.

use bytes::Bytes;
use ratified_coordinator::store::codec::{Entry, Meta, decode, encode_meta, encode_write};
use ratified_core::{
    ClientRecord, DecisionRecord, LastCommittedRecord, OutcomeRecord, ParticipantEntry, ParticipantRecord, Record,
    TransactionRecord, Uptime, Write,
};
use ratified_protocol::{
    CheckpointId, ClientName, EndReason, Epoch, Incarnation, LoadNonce, Outcome, ParticipantName, TimeoutMs, TxnId,
    TxnState, WallTime,
};
use uuid::Uuid;

/// The version of every value.
const VERSION: u8 = 1;

/// One length byte, a key of that length, and the value.
pub fn store_entry(data: &[u8]) {
    let Some((length, rest)) = data.split_first() else { return };
    let Some((key, value)) = rest.split_at_checked(usize::from(*length)) else { return };
    let Ok(entry) = decode(key, value) else { return };
    assert_eq!(value.first(), Some(&VERSION), "a value of another version is taken");
    assert!(matches!(key.first(), Some(1..=7)), "a key of an unknown kind is taken");
    let again = encode(&entry);
    assert_eq!(again.0, key, "one record, two keys");
    assert_eq!(decode(&again.0, &again.1).expect("what was written is read"), entry);
}

fn encode(entry: &Entry) -> (Vec<u8>, Vec<u8>) {
    let change = match entry {
        Entry::Meta(meta) => encode_meta(meta),
        Entry::Record(record) => encode_write(&Write::Put(record.clone())),
    };
    let change = change.expect("what was read can be written");
    (change.key, change.value.expect("a value"))
}

fn id() -> TxnId {
    TxnId::from_bytes([1, 2, 3, 4, 5, 6, 0x70, 8, 0x90, 10, 11, 12, 13, 14, 15, 16]).expect("a UUIDv7")
}

fn records() -> Vec<Record> {
    let client: ClientName = "orders-job.sink.3".parse().expect("a name");
    let participant: ParticipantName = "p".parse().expect("a name");
    let last = LastCommittedRecord {
        txn_id: id(),
        checkpoint_id: Some(CheckpointId::new(300)),
        end_time: WallTime::from_unix_millis(1_700_000_000_000),
        end_reason: EndReason::Client,
    };
    let body = ClientRecord {
        epoch: Epoch::new(7),
        incarnations: vec![Incarnation::new(Uuid::from_bytes([5; 16])); 2],
        owner: Some("host:1".to_owned().try_into().expect("a short text")),
        previous_owner: None,
        evicted_through: None,
        newest_txn_id: Some(id()),
        last_committed: Some(last),
        forgotten: false,
        generation: None,
        written: Uptime::from_millis(70_000),
    };
    let header = TransactionRecord {
        state: TxnState::Committing,
        epoch: Epoch::new(7),
        timeout_ms: TimeoutMs::DEFAULT,
        prepared_timeout_ms: None,
        require_prepare: true,
        checkpoint_id: Some(CheckpointId::new(42)),
        labels: Default::default(),
        participants: vec![ParticipantEntry { name: participant.clone(), at_begin: true, retired: false }],
        begin_time: WallTime::from_unix_millis(1),
        prepare_time: Some(WallTime::from_unix_millis(2)),
        begun: Uptime::from_millis(3),
        prepared: Some(Uptime::from_millis(4)),
        decision: Some(DecisionRecord { reason: EndReason::Operator, number: 9 }),
    };
    let outcome = OutcomeRecord {
        outcome: Outcome::Aborted,
        end_reason: EndReason::Timeout,
        checkpoint_id: None,
        end_time: WallTime::from_unix_millis(5),
        ended: Uptime::from_millis(6),
        termination: 200,
    };
    let about = ParticipantRecord { retired: true, reason: Some("gone".to_owned().try_into().expect("a short text")) };
    vec![
        Record::Client(client.clone(), body),
        Record::Transaction(client.clone(), id(), header),
        Record::Outcome(client.clone(), id(), outcome),
        Record::Payload(client.clone(), id(), Bytes::from_static(b"handle")),
        Record::Ack(client, id(), participant.clone()),
        Record::Participant(participant, about),
    ]
}

/// One of each.
pub fn store_seeds() -> Vec<Vec<u8>> {
    let meta = [Meta::Format(1), Meta::ClusterId(Uuid::from_bytes([7; 16])), Meta::Loads(3), Meta::Batch(300)];
    let others =
        [Meta::Uptime(Uptime::from_millis(9)), Meta::History(vec![(3, LoadNonce::new(Uuid::from_bytes([8; 16])))])];
    let entries = records().into_iter().map(Entry::Record).chain(meta.into_iter().chain(others).map(Entry::Meta));
    let pack = |entry: Entry| {
        let (key, value) = encode(&entry);
        [&[u8::try_from(key.len()).expect("a short key")][..], &key, &value].concat()
    };
    entries.map(pack).collect()
}
