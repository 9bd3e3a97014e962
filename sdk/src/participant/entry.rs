//! What a participant keeps on its own disk about a transaction.

use std::borrow::Cow;

use ratified_protocol::{ClientName, Epoch};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::{RawValue, to_raw_value};

use super::error::ParticipantError;

/// The only version there is.
const VERSION: u8 = 1;

/// An entry of the pending store. With a handle, the transaction is flushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry<H> {
    pub(super) client: ClientName,
    pub(super) epoch: Epoch,
    pub(super) handle: Option<H>,
}

#[derive(Serialize, Deserialize)]
struct Wire<'a> {
    version: u8,
    client: ClientName,
    epoch: Epoch,
    handle: Option<Cow<'a, RawValue>>,
}

impl<H: Serialize + DeserializeOwned> Entry<H> {
    pub(super) fn encode(&self) -> Result<Vec<u8>, ParticipantError> {
        let handle = self.handle.as_ref().map(to_raw_value).transpose().map_err(undecodable)?.map(Cow::Owned);
        let wire = Wire { version: VERSION, client: self.client.clone(), epoch: self.epoch, handle };
        serde_json::to_vec(&wire).map_err(undecodable)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, ParticipantError> {
        let wire: Wire<'_> = serde_json::from_slice(bytes).map_err(undecodable)?;
        if wire.version != VERSION {
            let why = format!("version {} is unknown", wire.version);
            return Err(ParticipantError::Undecodable { why });
        }
        let handle = wire.handle.map(|raw| serde_json::from_str(raw.get())).transpose().map_err(undecodable)?;
        Ok(Self { client: wire.client, epoch: wire.epoch, handle })
    }
}

fn undecodable(error: serde_json::Error) -> ParticipantError {
    ParticipantError::Undecodable { why: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_this_text() {
        for (handle, text) in [
            (None, r#"{"version":1,"client":"c","epoch":7,"handle":null}"#),
            (Some((1, "x".to_owned())), r#"{"version":1,"client":"c","epoch":7,"handle":[1,"x"]}"#),
        ] {
            let entry = Entry::<(u8, String)> { client: "c".parse().unwrap(), epoch: Epoch::new(7), handle };
            assert_eq!(String::from_utf8(entry.encode().unwrap()).unwrap(), text);
            assert_eq!(Entry::decode(text.as_bytes()).unwrap(), entry);
        }
    }

    #[test]
    fn what_is_of_another_version_or_kind_is_refused() {
        for (text, why) in [
            (r#"{"version":2,"client":"c","epoch":7,"handle":null}"#, "version 2 is unknown"),
            (r#"{"version":1,"client":"c","epoch":7,"handle":"x"}"#, "invalid type"),
            ("", "EOF"),
        ] {
            let error = Entry::<u64>::decode(text.as_bytes()).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
