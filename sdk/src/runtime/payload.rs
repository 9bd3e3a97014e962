//! What the coordinator keeps for a transaction: all that another process needs to finish it.
//!
//! ```text
//! payload   version u8 = 1  kind u8  slot u32  handleLength u32  handle (JSON)
//!           kind 2: positionLength u32  position, too
//!           kind 3: positionLength u32  position, instead of the handle: nothing was written
//! ```

use ratified_protocol::{MAX_PAYLOAD_BYTES, Payload};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    bytes::{Reader, Writer},
    error::RuntimeError,
};
use crate::sink::Slot;

const HANDLE: u8 = 1;
const HANDLE_AND_POSITION: u8 = 2;
const POSITION: u8 = 3;

/// A payload as the runtime writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) slot: Slot,
    /// The sink's handle, encoded; `None`: the sink was not asked to write anything.
    pub(crate) handle: Option<Vec<u8>>,
    /// Where the source stood, for jobs that checkpoint themselves.
    pub(crate) position: Option<Vec<u8>>,
}

impl Envelope {
    /// The payload, unless it would be too large.
    pub(crate) fn to_payload(&self) -> Result<Payload, RuntimeError> {
        let mut writer = Writer::default();
        let kind = match (&self.handle, &self.position) {
            (None, _) => POSITION,
            (Some(_), None) => HANDLE,
            (Some(_), Some(_)) => HANDLE_AND_POSITION,
        };
        writer.u8(1).u8(kind).u32(self.slot.as_u32());
        for part in self.handle.iter().chain(&self.position) {
            writer.counted(part);
        }
        let bytes = writer.finish();
        if bytes.len() > MAX_PAYLOAD_BYTES {
            return Err(RuntimeError::PayloadTooLarge { bytes: bytes.len() });
        }
        Ok(Payload::new(bytes))
    }

    pub(crate) fn from_payload(payload: &Payload) -> Result<Self, RuntimeError> {
        let mut reader = Reader::new("payload", payload.as_bytes())?;
        let kind = reader.u8()?;
        let slot = Slot::new(reader.u32()?);
        let (handle, position) = match kind {
            HANDLE => (Some(reader.counted()?.to_vec()), None),
            HANDLE_AND_POSITION => (Some(reader.counted()?.to_vec()), Some(reader.counted()?.to_vec())),
            POSITION => (None, Some(reader.counted()?.to_vec())),
            other => return Err(reader.refuse(format!("kind {other} is unknown"))),
        };
        reader.end()?;
        Ok(Self { slot, handle, position })
    }
}

/// A handle as bytes, after they were read back: what another process could not read, or would read as another one, is told
/// before anything is decided with it.
pub(crate) fn encode_handle<H: Serialize + DeserializeOwned>(handle: &H) -> Result<Vec<u8>, RuntimeError> {
    let undecodable = |e: serde_json::Error| RuntimeError::Undecodable { what: "handle", why: e.to_string() };
    let bytes = serde_json::to_vec(handle).map_err(undecodable)?;
    let written: Value = serde_json::from_slice(&bytes).map_err(undecodable)?;
    let read = serde_json::to_value(decode_handle::<H>(&bytes)?).map_err(undecodable)?;
    if read == written {
        Ok(bytes)
    } else {
        let why = format!("the sink's own would be read by another process as {read}, and not as {written}");
        Err(RuntimeError::Undecodable { what: "handle", why })
    }
}

/// A handle from bytes.
pub(crate) fn decode_handle<H: DeserializeOwned>(bytes: &[u8]) -> Result<H, RuntimeError> {
    serde_json::from_slice(bytes).map_err(|e| RuntimeError::Undecodable { what: "handle", why: e.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(position: Option<&[u8]>) -> Envelope {
        Envelope { slot: Slot::new(3), handle: Some(b"\"h\"".to_vec()), position: position.map(<[u8]>::to_vec) }
    }

    #[test]
    fn the_format_is_these_bytes() {
        let without = envelope(None).to_payload().unwrap();
        assert_eq!(without.as_bytes(), b"\x01\x01\x03\0\0\0\x03\0\0\0\"h\"");
        let with = envelope(Some(b"pos")).to_payload().unwrap();
        assert_eq!(with.as_bytes(), b"\x01\x02\x03\0\0\0\x03\0\0\0\"h\"\x03\0\0\0pos");
        let alone = Envelope { handle: None, ..envelope(Some(b"pos")) }.to_payload().unwrap();
        assert_eq!(alone.as_bytes(), b"\x01\x03\x03\0\0\0\x03\0\0\0pos");
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else() {
        let alone = Envelope { handle: None, ..envelope(Some(b"pos")) };
        for whole in [envelope(None), envelope(Some(b"")), envelope(Some(b"pos")), alone] {
            let payload = whole.to_payload().unwrap();
            assert_eq!(Envelope::from_payload(&payload).unwrap(), whole);
            for length in 0..payload.len() {
                let cut = Payload::new(payload.as_bytes()[..length].to_vec());
                assert!(Envelope::from_payload(&cut).is_err(), "{length}");
            }
            let longer = Payload::new([payload.as_bytes(), b"x"].concat());
            assert!(Envelope::from_payload(&longer).is_err());
        }
    }

    #[test]
    fn unknown_versions_and_kinds_are_refused() {
        for (bytes, why) in [(&b"\x02\x01\0\0\0\0\0\0\0\0"[..], "version 2"), (b"\x01\x04\0\0\0\0\0\0\0\0", "kind 4")] {
            let refused = Envelope::from_payload(&Payload::new(bytes.to_vec())).unwrap_err();
            assert!(refused.to_string().contains(why), "{refused}");
        }
    }

    #[test]
    fn a_handle_that_another_process_would_not_read_is_refused() {
        #[derive(serde::Serialize, serde::Deserialize)]
        struct OneWay {
            offset: f64,
            #[serde(skip_deserializing)]
            parts: Vec<u8>,
        }
        let handle = |offset, parts: &[u8]| encode_handle(&OneWay { offset, parts: parts.to_vec() });
        assert_eq!(handle(1.5, &[]).unwrap(), b"{\"offset\":1.5,\"parts\":[]}");
        let refused = handle(f64::NEG_INFINITY, &[]).unwrap_err().to_string();
        assert!(refused.contains("invalid type: null, expected f64"), "{refused}");
        let refused = handle(1.5, &[7]).unwrap_err().to_string();
        let told = "would be read by another process as {\"offset\":1.5,\"parts\":[]}, and not as";
        assert!(refused.contains(told), "{refused}");
    }

    #[test]
    fn a_payload_is_taken_up_to_its_bound() {
        let of = |bytes: usize| Envelope { slot: Slot::new(0), handle: Some(vec![b'1'; bytes]), position: None };
        assert_eq!(of(65_526).to_payload().map(|p| p.len()).ok(), Some(65_536));
        assert!(matches!(of(65_527).to_payload(), Err(RuntimeError::PayloadTooLarge { bytes: 65_537 })));
    }
}
