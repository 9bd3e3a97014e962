//! Keys and values on disk.
//!
//! A key is a tag byte, then a name; where an id follows, a zero byte ends the name (names never hold one), then come
//! the sixteen bytes of the id, then, in an acknowledgement, the participant. Keys sort so that a load reads the meta
//! records first, then clients, participants, outcomes, and transactions with what belongs to them. A value is a
//! version byte, then the record in postcard form. A record is written in the lowest version that can hold it, and every
//! version is read: a client's version 2 is its version 1 and then the generation. Unknown tags and versions are refused,
//! never skipped.

use ratified_core::{ClientRecord, Key, Record, Uptime, Write};
use ratified_protocol::{ClientName, Generation, LoadNonce, ParticipantName, TxnId};
use serde::{Serialize, de::DeserializeOwned};
use uuid::Uuid;

use super::{Change, StoreError};

/// The version of the layout as a whole, in the `format` record.
pub const FORMAT: u64 = 1;

const META: u8 = 1;
const CLIENT: u8 = 2;
const PARTICIPANT: u8 = 3;
const OUTCOME: u8 = 4;
const TRANSACTION: u8 = 5;
const ACK: u8 = 6;
const PAYLOAD: u8 = 7;

const VERSION: u8 = 1;
/// Of a client that was opened with a generation.
const WITH_GENERATION: u8 = 2;

/// A record about the store itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meta {
    /// The version of the layout.
    Format(u64),
    /// Drawn once, when the store is made.
    ClusterId(Uuid),
    /// How often the store has been loaded.
    Loads(u64),
    /// The number of the last batch.
    Batch(u64),
    /// The uptime of the last batch.
    Uptime(Uptime),
    /// The newest loads, oldest first, each with the nonce that was drawn for it.
    History(Vec<(u64, LoadNonce)>),
}

/// What a key and its value hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// Something about the store itself.
    Meta(Meta),
    /// Something the engine wrote.
    Record(Record),
}

impl Meta {
    const fn name(&self) -> &'static str {
        match self {
            Self::Format(_) => "format",
            Self::ClusterId(_) => "clusterId",
            Self::Loads(_) => "loads",
            Self::Batch(_) => "batch",
            Self::Uptime(_) => "uptime",
            Self::History(_) => "history",
        }
    }
}

/// The change that writes a meta record.
///
/// # Errors
/// A value cannot be written down; a defect.
pub fn encode_meta(meta: &Meta) -> Result<Change, StoreError> {
    let key = [&[META], meta.name().as_bytes()].concat();
    let value = match meta {
        Meta::ClusterId(id) => versioned(&key, id.as_bytes())?,
        Meta::Format(n) | Meta::Loads(n) | Meta::Batch(n) => versioned(&key, n)?,
        Meta::Uptime(uptime) => versioned(&key, uptime)?,
        Meta::History(loads) => {
            let loads: Vec<_> = loads.iter().map(|(loads, nonce)| (*loads, *nonce.as_bytes())).collect();
            versioned(&key, &loads)?
        }
    };
    Ok(Change { key, value: Some(value) })
}

/// The change on disk that a change of the engine is.
///
/// # Errors
/// A record cannot be written down; a defect.
pub fn encode_write(write: &Write) -> Result<Change, StoreError> {
    match write {
        Write::Delete(key) => Ok(Change { key: encode_key(key), value: None }),
        Write::Put(record) => {
            let key = encode_key(&record.key());
            let value = match record {
                Record::Client(_, body) => encode_client(&key, body)?,
                Record::Transaction(_, _, body) => versioned(&key, body)?,
                Record::Outcome(_, _, body) => versioned(&key, body)?,
                Record::Participant(_, body) => versioned(&key, body)?,
                Record::Ack(..) => vec![VERSION],
                Record::Payload(_, _, bytes) => [&[VERSION], bytes.as_ref()].concat(),
            };
            Ok(Change { key, value: Some(value) })
        }
    }
}

/// Where a record lies.
pub fn encode_key(key: &Key) -> Vec<u8> {
    let (tag, name, id, participant) = match key {
        Key::Client(client) => (CLIENT, client.as_str(), None, ""),
        Key::Participant(name) => (PARTICIPANT, name.as_str(), None, ""),
        Key::Outcome(client, id) => (OUTCOME, client.as_str(), Some(id), ""),
        Key::Transaction(client, id) => (TRANSACTION, client.as_str(), Some(id), ""),
        Key::Ack(client, id, participant) => (ACK, client.as_str(), Some(id), participant.as_str()),
        Key::Payload(client, id) => (PAYLOAD, client.as_str(), Some(id), ""),
    };
    let mut bytes = Vec::with_capacity(1 + name.len() + 17 + participant.len());
    bytes.push(tag);
    bytes.extend_from_slice(name.as_bytes());
    if let Some(id) = id {
        bytes.push(0);
        bytes.extend_from_slice(id.as_bytes());
        bytes.extend_from_slice(participant.as_bytes());
    }
    bytes
}

/// Reads an entry back.
///
/// # Errors
/// An unknown tag or version, or bytes that are not what was written; the caller must refuse to start.
pub fn decode(key: &[u8], value: &[u8]) -> Result<Entry, StoreError> {
    let (tag, rest) = key.split_first().ok_or_else(|| damaged(key, "the key is empty"))?;
    let record = match *tag {
        META => return decode_meta(key, rest, value).map(Entry::Meta),
        CLIENT => Record::Client(name(key, rest)?, decode_client(key, value)?),
        PARTICIPANT => Record::Participant(name(key, rest)?, body(key, value)?),
        OUTCOME => {
            let (client, id) = client_and_id(key, rest)?;
            Record::Outcome(client, id, body(key, value)?)
        }
        TRANSACTION => {
            let (client, id) = client_and_id(key, rest)?;
            Record::Transaction(client, id, body(key, value)?)
        }
        PAYLOAD => {
            let (client, id) = client_and_id(key, rest)?;
            Record::Payload(client, id, bytes::Bytes::copy_from_slice(unversioned(key, value)?))
        }
        ACK => {
            let (client, id, participant) = split(key, rest)?;
            if !unversioned(key, value)?.is_empty() {
                return Err(damaged(key, "an acknowledgement holds nothing"));
            }
            Record::Ack(client, id, name::<ParticipantName>(key, participant)?)
        }
        other => return Err(damaged(key, format!("unknown tag {other}; written by a newer version?"))),
    };
    Ok(Entry::Record(record))
}

fn decode_meta(key: &[u8], name: &[u8], value: &[u8]) -> Result<Meta, StoreError> {
    match name {
        b"format" => body(key, value).map(Meta::Format),
        b"clusterId" => body(key, value).map(|id| Meta::ClusterId(Uuid::from_bytes(id))),
        b"loads" => body(key, value).map(Meta::Loads),
        b"batch" => body(key, value).map(Meta::Batch),
        b"uptime" => body(key, value).map(Meta::Uptime),
        b"history" => {
            let loads: Vec<(u64, [u8; 16])> = body(key, value)?;
            let nonce = |(loads, bytes)| (loads, LoadNonce::new(Uuid::from_bytes(bytes)));
            Ok(Meta::History(loads.into_iter().map(nonce).collect()))
        }
        _ => Err(damaged(key, "unknown meta record; written by a newer version?")),
    }
}

fn encode_client(key: &[u8], client: &ClientRecord) -> Result<Vec<u8>, StoreError> {
    match client.generation {
        None => versioned(key, client),
        Some(generation) => in_version(WITH_GENERATION, key, &(client, generation)),
    }
}

fn decode_client(key: &[u8], value: &[u8]) -> Result<ClientRecord, StoreError> {
    let Some((&WITH_GENERATION, bytes)) = value.split_first() else { return body(key, value) };
    let (client, generation): (ClientRecord, Generation) = whole(key, bytes)?;
    Ok(ClientRecord { generation: Some(generation), ..client })
}

fn versioned<T: Serialize>(key: &[u8], body: &T) -> Result<Vec<u8>, StoreError> {
    in_version(VERSION, key, body)
}

fn in_version<T: Serialize>(version: u8, key: &[u8], body: &T) -> Result<Vec<u8>, StoreError> {
    postcard::to_extend(body, vec![version]).map_err(|e| damaged(key, format!("cannot be written down: {e}")))
}

fn unversioned<'a>(key: &[u8], value: &'a [u8]) -> Result<&'a [u8], StoreError> {
    match value.split_first() {
        Some((&VERSION, body)) => Ok(body),
        Some((version, _)) => {
            Err(damaged(key, format!("unknown version {version} of this record; written by a newer program?")))
        }
        None => Err(damaged(key, "the value is empty")),
    }
}

fn body<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T, StoreError> {
    whole(key, unversioned(key, value)?)
}

fn whole<T: DeserializeOwned>(key: &[u8], bytes: &[u8]) -> Result<T, StoreError> {
    let (body, rest) = postcard::take_from_bytes(bytes).map_err(|e| damaged(key, e.to_string()))?;
    if rest.is_empty() { Ok(body) } else { Err(damaged(key, format!("{} bytes too many", rest.len()))) }
}

fn name<T: std::str::FromStr<Err: std::fmt::Display>>(key: &[u8], bytes: &[u8]) -> Result<T, StoreError> {
    let text = std::str::from_utf8(bytes).map_err(|e| damaged(key, e.to_string()))?;
    text.parse().map_err(|e| damaged(key, format!("the name {e}")))
}

fn client_and_id(key: &[u8], rest: &[u8]) -> Result<(ClientName, TxnId), StoreError> {
    match split(key, rest)? {
        (client, id, []) => Ok((client, id)),
        _ => Err(damaged(key, "the key goes on after the id")),
    }
}

fn split<'a>(key: &[u8], rest: &'a [u8]) -> Result<(ClientName, TxnId, &'a [u8]), StoreError> {
    let end = rest.iter().position(|b| *b == 0).ok_or_else(|| damaged(key, "no end of the name"))?;
    let (client, rest) = rest.split_at(end);
    let id = rest.get(1..).and_then(<[u8]>::split_first_chunk::<16>);
    let (id, rest) = id.ok_or_else(|| damaged(key, "the id is short"))?;
    let id = TxnId::from_bytes(*id).map_err(|e| damaged(key, format!("the id {e}")))?;
    Ok((name(key, client)?, id, rest))
}

fn damaged(key: &[u8], problem: impl Into<String>) -> StoreError {
    StoreError::damaged(place(key), problem)
}

/// A key for people: tag, name, id, participant; hexadecimal where it is none of these.
pub fn place(key: &[u8]) -> String {
    let Some((tag, rest)) = key.split_first() else {
        return "key (empty)".to_owned();
    };
    let kind = match *tag {
        META => "meta",
        CLIENT => "client",
        PARTICIPANT => "participant",
        OUTCOME => "outcome",
        TRANSACTION => "transaction",
        ACK => "ack",
        PAYLOAD => "payload",
        _ => return format!("key 0x{}", hex(key)),
    };
    let (name, after) = match rest.iter().position(|b| *b == 0) {
        Some(end) => rest.split_at(end),
        None => (rest, &[][..]),
    };
    let mut place = format!("{kind} {}", String::from_utf8_lossy(name));
    if let Some((id, participant)) = after.get(1..).and_then(<[u8]>::split_first_chunk::<16>) {
        place.push_str(&format!(" {}", Uuid::from_bytes(*id).hyphenated()));
        if !participant.is_empty() {
            place.push_str(&format!(" {}", String::from_utf8_lossy(participant)));
        }
    } else if !after.is_empty() {
        place.push_str(&format!(" 0x{}", hex(after)));
    }
    place
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
