//! The handles of all members, as one.

use std::{any::Any, borrow::Cow, fmt};

use ratified_protocol::MAX_PAYLOAD_BYTES;
use serde::{Deserialize, Serialize, Serializer, de::DeserializeOwned, ser::Error as _};
use serde_json::value::{RawValue, to_raw_value};
use thiserror::Error;

use super::names::MemberName;
use crate::{author::Version, error::SinkError};

/// Greatest size of all members' handles together, encoded, in bytes. The source's position and a few bytes of the
/// runtime's own need room in the same payload.
pub const MAX_HANDLE_BYTES: usize = MAX_PAYLOAD_BYTES - 1024;

/// What every member needs to finish a transaction, by its name.
#[derive(Clone, Deserialize)]
#[serde(try_from = "Wire")]
pub struct CompositeHandle {
    pub(super) members: Vec<(MemberName, MemberHandle)>,
}

impl CompositeHandle {
    /// The names of the members that take part in the transaction.
    pub fn member_names(&self) -> Vec<MemberName> {
        self.members.iter().map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn get(&self, name: &MemberName) -> Option<&MemberHandle> {
        self.members.iter().find(|(known, _)| known == name).map(|(_, handle)| handle)
    }

    /// Refuses handles that are too large together.
    pub(super) fn check_size(&self) -> Result<(), SinkError> {
        let mut sizes = Vec::with_capacity(self.members.len());
        for (name, handle) in &self.members {
            let encoded = handle.encode().map_err(|error| undecodable(name, &error))?;
            sizes.push((name, encoded.get().len()));
        }
        let bytes = serde_json::to_vec(self).map_err(SinkError::rejected)?.len();
        if bytes <= MAX_HANDLE_BYTES {
            return Ok(());
        }
        let each: Vec<_> = sizes.iter().map(|(name, bytes)| format!("{name} {bytes}")).collect();
        let each = each.join(", ");
        Err(SinkError::rejected(format!(
            "the members' handles have {bytes} bytes together, at most {MAX_HANDLE_BYTES} are taken ({each}): \
             take checkpoints more often, or let a member write fewer files"
        )))
    }
}

impl fmt::Debug for CompositeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompositeHandle").field("members", &self.member_names()).finish_non_exhaustive()
    }
}

/// One member's handle: as its sink made it, or as it was read.
pub(super) enum MemberHandle {
    Live(Box<dyn AnyHandle>),
    Encoded(Box<RawValue>),
}

impl MemberHandle {
    pub(super) fn new<H: AnyHandle>(handle: H) -> Self {
        Self::Live(Box::new(handle))
    }

    fn encode(&self) -> serde_json::Result<Cow<'_, RawValue>> {
        match self {
            Self::Live(handle) => handle.encode().map(Cow::Owned),
            Self::Encoded(raw) => Ok(Cow::Borrowed(raw)),
        }
    }

    /// The handle as its sink knows it.
    pub(super) fn typed<H>(&self) -> Result<Cow<'_, H>, SinkError>
    where
        H: DeserializeOwned + Clone + 'static,
    {
        match self {
            Self::Live(handle) => (**handle).as_any().downcast_ref().map(Cow::Borrowed).ok_or_else(foreign),
            Self::Encoded(raw) => serde_json::from_str(raw.get()).map(Cow::Owned).map_err(SinkError::rejected),
        }
    }

    /// The handle as its sink knows it, to be changed.
    pub(super) fn typed_mut<H>(&mut self) -> Result<&mut H, SinkError>
    where
        H: AnyHandle + DeserializeOwned + Clone,
    {
        if let Self::Encoded(_) = self {
            let handle: H = self.typed::<H>()?.into_owned();
            *self = Self::new(handle);
        }
        match self {
            Self::Live(handle) => (**handle).as_any_mut().downcast_mut().ok_or_else(foreign),
            Self::Encoded(_) => Err(foreign()),
        }
    }
}

impl Clone for MemberHandle {
    fn clone(&self) -> Self {
        match self {
            Self::Live(handle) => Self::Live((**handle).boxed_clone()),
            Self::Encoded(raw) => Self::Encoded(raw.clone()),
        }
    }
}

/// A handle whose type only its member knows.
pub(super) trait AnyHandle: Any + Send + Sync {
    fn encode(&self) -> serde_json::Result<Box<RawValue>>;
    fn boxed_clone(&self) -> Box<dyn AnyHandle>;
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<H: Serialize + Clone + Send + Sync + 'static> AnyHandle for H {
    fn encode(&self) -> serde_json::Result<Box<RawValue>> {
        to_raw_value(self)
    }

    fn boxed_clone(&self) -> Box<dyn AnyHandle> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

fn foreign() -> SinkError {
    SinkError::rejected("the handle is of another sink")
}

fn undecodable(name: &MemberName, error: &serde_json::Error) -> SinkError {
    SinkError::rejected(format!("the handle of member {name} cannot be encoded: {error}"))
}

#[derive(Serialize, Deserialize)]
struct Wire<'a> {
    version: Version<1>,
    members: Vec<WireMember<'a>>,
}

#[derive(Serialize, Deserialize)]
struct WireMember<'a> {
    name: MemberName,
    handle: Cow<'a, RawValue>,
}

impl Serialize for CompositeHandle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = Vec::with_capacity(self.members.len());
        for (name, handle) in &self.members {
            let handle = handle.encode().map_err(S::Error::custom)?;
            members.push(WireMember { name: name.clone(), handle });
        }
        Wire { version: Version, members }.serialize(serializer)
    }
}

#[derive(Debug, Error)]
#[error("a composite handle names the member {0} twice")]
struct Twice(MemberName);

impl TryFrom<Wire<'_>> for CompositeHandle {
    type Error = Twice;
    fn try_from(wire: Wire<'_>) -> Result<Self, Twice> {
        let mut handle = Self { members: Vec::with_capacity(wire.members.len()) };
        for member in wire.members {
            if handle.get(&member.name).is_some() {
                return Err(Twice(member.name));
            }
            handle.members.push((member.name, MemberHandle::Encoded(member.handle.into_owned())));
        }
        Ok(handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(bytes: [usize; 2]) -> CompositeHandle {
        let [a, b] = bytes.map(|bytes| MemberHandle::new("x".repeat(bytes)));
        CompositeHandle { members: vec![("a".parse().unwrap(), a), ("b".parse().unwrap(), b)] }
    }

    #[test]
    fn the_format_is_this_text_and_survives_its_decoding() {
        let text = r#"{"version":1,"members":[{"name":"a","handle":"x"},{"name":"b","handle":"xx"}]}"#;
        assert_eq!(serde_json::to_string(&handle([1, 2])).unwrap(), text);
        let again: CompositeHandle = serde_json::from_slice(text.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
        assert_eq!(again.get(&"b".parse().unwrap()).unwrap().typed::<String>().unwrap().as_ref(), "xx");
    }

    #[test]
    fn a_decoded_handle_can_be_changed_and_a_foreign_one_cannot() {
        let mut decoded: CompositeHandle =
            serde_json::from_str(&serde_json::to_string(&handle([1, 2])).unwrap()).unwrap();
        decoded.members[0].1.typed_mut::<String>().unwrap().push('y');
        assert!(serde_json::to_string(&decoded).unwrap().contains(r#""xy""#));
        assert!(decoded.members[0].1.typed_mut::<u64>().is_err());
        assert!(decoded.members[0].1.typed::<u64>().is_err());
        assert!(decoded.members[1].1.typed::<u64>().is_err());
    }

    #[test]
    fn unknown_versions_and_doubled_members_are_refused() {
        let a = r#"{"name":"a","handle":1}"#;
        for (text, why) in [
            (r#"{"version":2,"members":[]}"#.to_owned(), "version 2 is not known"),
            (format!(r#"{{"version":1,"members":[{a},{a}]}}"#), "names the member a twice"),
            (r#"{"version":1,"members":[{"name":"","handle":1}]}"#.to_owned(), "1..=32 characters"),
        ] {
            let error = serde_json::from_str::<CompositeHandle>(&text).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn handles_are_taken_up_to_their_bound_together() {
        let overhead = serde_json::to_vec(&handle([0, 0])).unwrap().len();
        let most = MAX_HANDLE_BYTES - overhead;
        assert!(handle([1, most - 1]).check_size().is_ok());
        let error = handle([2, most - 1]).check_size().unwrap_err().to_string();
        assert!(error.contains("64513 bytes together, at most 64512 are taken (a 4, b "), "{error}");
    }
}
