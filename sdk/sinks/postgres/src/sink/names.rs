//! What a transaction and a session are called in the database, so that whoever comes later finds them.

use std::fmt;

use ratified::{ClientName, Epoch, TxnId};
use sha2::{Digest as _, Sha256};

use crate::database::PostgresError;

/// The longest name of a sink, in characters.
pub const MAX_SINK_NAME_CHARS: usize = 24;
/// PostgreSQL's `GIDSIZE` is 200, its last byte being the end mark.
const MAX_GID_BYTES: usize = 199;
const PREFIX: &str = "ratified:";
/// What is left for the client besides prefix, sink, database, id and three separators.
const CLIENT_CHARS: usize = MAX_GID_BYTES - PREFIX.len() - MAX_SINK_NAME_CHARS - 10 - 36 - 3;
const HASH_CHARS: usize = 32;

/// What tells the transactions of one sink from those of another in the same database: 1..=24 of `A-Z a-z 0-9 _ -`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SinkId(String);

impl SinkId {
    /// The name of a sink that is given none.
    pub(super) fn main() -> Self {
        Self("main".to_owned())
    }

    pub(super) fn parse(name: &str) -> Result<Self, PostgresError> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        let taken = (1..=MAX_SINK_NAME_CHARS).contains(&name.len()) && name.bytes().all(legal);
        if taken {
            Ok(Self(name.to_owned()))
        } else {
            let bounds = "1..=24 characters of A-Z a-z 0-9 _ -";
            Err(PostgresError::OutOfBounds { key: "the name of a sink", bounds })
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The global identifier of a prepared transaction: `ratified:<sink>:<oid of the database>:<txnId>:<client>`.
///
/// It names the database because the server keeps one list for all of them. A client too long for it is cut, and followed
/// by a slash, which no client's name has, and 128 bits of the SHA-256 of the whole name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gid(String);

impl Gid {
    pub(super) fn new(sink: &SinkId, database: u32, client: &ClientName, txn_id: TxnId) -> Self {
        Self(format!("{PREFIX}{}:{database}:{txn_id}:{}", sink.0, shortened(client)))
    }

    /// The id in an identifier, if it is one of this sink's and this client's.
    pub(super) fn parse(text: &str, sink: &SinkId, database: u32, client: &ClientName) -> Option<TxnId> {
        let mut parts = text.strip_prefix(PREFIX)?.splitn(4, ':');
        let (of_sink, of_database) = (parts.next()?, parts.next()?);
        let txn_id = parts.next()?.parse().ok()?;
        // One transaction has one spelling, so the whole is compared.
        let is_ours = of_sink == sink.0 && of_database == database.to_string();
        (is_ours && Self::new(sink, database, client, txn_id).0 == text).then_some(txn_id)
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn shortened(client: &ClientName) -> String {
    let name = client.as_str();
    if name.len() <= CLIENT_CHARS {
        return name.to_owned();
    }
    let kept = name.get(..CLIENT_CHARS - 1 - HASH_CHARS).unwrap_or(name);
    format!("{kept}/{}", hash(&[name]))
}

/// The first 128 bits of the SHA-256 of these texts, as hexadecimal digits.
pub(super) fn hash(texts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for text in texts {
        // With its length in front no text can pass for two.
        hasher.update((text.len() as u64).to_be_bytes());
        hasher.update(text.as_bytes());
    }
    hasher.finalize().iter().take(HASH_CHARS / 2).map(|byte| format!("{byte:02x}")).collect()
}

/// The application name of the sessions that write for one owner of a client: `ratified:<hash of sink and client>:<epoch>`.
/// At most 62 bytes; the server cuts what is longer than 63.
pub(super) fn session_name(sink: &SinkId, client: &ClientName, epoch: Epoch) -> String {
    format!("{}{epoch}", session_prefix(sink, client))
}

pub(super) fn session_prefix(sink: &SinkId, client: &ClientName) -> String {
    format!("{PREFIX}{}:", hash(&[sink.as_str(), client.as_str()]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f";

    fn sink(name: &str) -> SinkId {
        SinkId::parse(name).unwrap()
    }

    fn gid(name: &str, database: u32, client: &str) -> String {
        Gid::new(&sink(name), database, &client.parse().unwrap(), ID.parse().unwrap()).0
    }

    #[test]
    fn a_gid_names_sink_database_id_and_client() {
        assert_eq!(gid("main", 5, "shop.sink.3"), format!("ratified:main:5:{ID}:shop.sink.3"));
        assert_eq!(gid("main", 5, "a:b.~@-_"), format!("ratified:main:5:{ID}:a:b.~@-_"));
    }

    #[test]
    fn a_gid_of_the_longest_names_fits_and_is_told_apart() {
        let (name, longest) = ("s".repeat(24), "c".repeat(200));
        let gids: Vec<_> = [longest.clone(), format!("{}d", "c".repeat(199)), "c".repeat(199)]
            .iter()
            .map(|client| gid(&name, u32::MAX, client))
            .collect();
        assert_eq!(gids.iter().map(String::len).collect::<Vec<_>>(), [199, 199, 199]);
        assert_eq!(gids.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
        let client = longest.parse().unwrap();
        assert_eq!(Gid::parse(&gids[0], &sink(&name), u32::MAX, &client), Some(ID.parse().unwrap()));
        assert_eq!(Gid::parse(&gids[1], &sink(&name), u32::MAX, &client), None);
    }

    #[test]
    fn the_bound_between_whole_and_cut_clients_is_exact() {
        let (fits, does_not) = ("c".repeat(117), "c".repeat(118));
        assert!(gid("main", 5, &fits).ends_with(&format!(":{fits}")));
        let cut = gid("main", 5, &does_not);
        let (kept, hashed) = cut.rsplit_once('/').unwrap();
        assert!(kept.ends_with(&format!(":{}", "c".repeat(84))) && hashed.len() == 32, "{cut}");
    }

    #[test]
    fn only_own_gids_are_read() {
        let parse = |text: &str| Gid::parse(text, &sink("main"), 5, &"c.1".parse().unwrap());
        let own = gid("main", 5, "c.1");
        assert_eq!(parse(&own), Some(ID.parse().unwrap()));
        for foreign in [
            gid("main", 5, "c.10"),
            gid("main", 5, "c"),
            gid("main", 50, "c.1"),
            gid("other", 5, "c.1"),
            own.replace("ratified:", "Ratified:"),
            own.to_uppercase(),
            own.replace(":5:", ":05:"),
            format!("{own} "),
            "ratified:main:5".to_owned(),
            String::new(),
        ] {
            assert_eq!(parse(&foreign), None, "{foreign}");
        }
    }

    #[test]
    fn the_longest_session_name_is_not_cut_by_the_server() {
        let name = session_name(&sink(&"s".repeat(24)), &"c".repeat(200).parse().unwrap(), Epoch::new(u64::MAX));
        assert_eq!(name.len(), 62, "{name}");
    }

    #[test]
    fn names_of_sinks_are_taken_up_to_their_bound() {
        let longest = "s".repeat(24);
        for good in ["m", "main", "A_b-9", longest.as_str()] {
            assert_eq!(SinkId::parse(good).unwrap().as_str(), good);
        }
        for wrong in ["", "a:b", "a b", "ä", "a'", &"s".repeat(25)] {
            assert!(SinkId::parse(wrong).unwrap_err().to_string().starts_with("the name of a sink must be 1..=24"));
        }
    }

    proptest! {
        #[test]
        fn every_gid_is_short_and_read_back(
            client in "[A-Za-z0-9][A-Za-z0-9._:@~-]{0,199}",
            name in "[A-Za-z0-9_-]{1,24}",
            database: u32,
        ) {
            let (client, name): (ClientName, _) = (client.parse().unwrap(), sink(&name));
            let gid = Gid::new(&name, database, &client, ID.parse().unwrap());
            prop_assert!(gid.as_str().len() <= MAX_GID_BYTES);
            prop_assert_eq!(Gid::parse(gid.as_str(), &name, database, &client), Some(ID.parse().unwrap()));
        }
    }
}
