//! Words of answers: a later coordinator may use ones that this version does not know.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    problem::Code,
    state::{EndReason, Outcome, TxnState},
};

/// A closed set of words that this version of the protocol knows.
pub trait Word: Copy + PartialEq + 'static {
    /// Every word.
    const WORDS: &'static [Self];

    /// The word on the wire.
    fn word(self) -> &'static str;
}

macro_rules! words {
    ($($name:ty),*) => {$(
        impl Word for $name {
            const WORDS: &'static [Self] = &Self::ALL;

            fn word(self) -> &'static str {
                self.as_str()
            }
        }
    )*};
}

words!(TxnState, Outcome, EndReason);

impl Word for Code {
    const WORDS: &'static [Self] = Self::ALL;

    fn word(self) -> &'static str {
        self.as_str()
    }
}

/// What an answer says: a word that this version knows, or one of a later version. Requests take known words only.
///
/// An unknown word is a value like any other: what it means for the caller is told by the class of the answer's status.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Told<T> {
    /// A word of this version.
    Known(T),
    /// A word of a later version, as it came.
    Unknown(Box<str>),
}

impl<T: Word> Told<T> {
    /// The word, if this version knows it.
    pub fn known(&self) -> Option<T> {
        match self {
            Self::Known(word) => Some(*word),
            Self::Unknown(_) => None,
        }
    }

    /// The word on the wire. One that is unknown is the other side's text: escape it before it is shown.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(word) => word.word(),
            Self::Unknown(word) => word,
        }
    }
}

impl Told<TxnState> {
    /// The decision, once there is one that this version knows.
    pub fn outcome(&self) -> Option<Outcome> {
        self.known().and_then(TxnState::outcome)
    }

    /// Whether the transaction is known to be over.
    pub fn is_terminal(&self) -> bool {
        self.known().is_some_and(TxnState::is_terminal)
    }
}

impl<T> From<T> for Told<T> {
    fn from(word: T) -> Self {
        Self::Known(word)
    }
}

impl<T: Word> PartialEq<T> for Told<T> {
    fn eq(&self, other: &T) -> bool {
        self.known() == Some(*other)
    }
}

impl<T: Word> fmt::Display for Told<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(word) => f.write_str(word.word()),
            Self::Unknown(word) => write!(f, "{}", word.escape_debug()),
        }
    }
}

impl<T: Word> Serialize for Told<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de, T: Word> Deserialize<'de> for Told<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let known = T::WORDS.iter().find(|word| word.word() == text);
        Ok(known.map_or_else(|| Self::Unknown(text.into()), |word| Self::Known(*word)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Problem, Txn};

    #[test]
    fn a_word_of_a_later_version_is_a_value() {
        let txn: Txn = serde_json::from_str(
            r#"{"clientName":"job.0","txnId":"0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f","state":"SLEEPING",
                "endReason":"WHIM","colour":"blue"}"#,
        )
        .unwrap();
        assert_eq!(txn.state, Told::Unknown("SLEEPING".into()));
        assert_eq!((txn.state.known(), txn.state.outcome()), (None, None));
        assert_eq!(txn.end_reason, Some(Told::Unknown("WHIM".into())));
        let written = serde_json::to_value(&txn).unwrap();
        assert_eq!((&written["state"], &written["endReason"]), (&"SLEEPING".into(), &"WHIM".into()));
    }

    #[test]
    fn a_code_of_a_later_version_leaves_the_rest_of_the_problem() {
        let text = r#"{"status":409,"code":"MOON_IS_FULL","retryable":false,"final":false,"detail":"wait"}"#;
        let problem: Problem = serde_json::from_str(text).unwrap();
        assert_eq!((problem.code.known(), problem.status, problem.detail.as_str()), (None, 409, "wait"));
        assert_eq!(problem.to_string(), "MOON_IS_FULL: wait");
    }

    #[test]
    fn every_known_word_is_known_also_as_the_key_of_a_map() {
        for state in TxnState::ALL {
            let text = format!("{{\"{state}\":1}}");
            let counts: BTreeMap<Told<TxnState>, u64> = serde_json::from_str(&text).unwrap();
            assert_eq!(counts, BTreeMap::from([(state.into(), 1)]));
            assert_eq!(serde_json::to_string(&counts).unwrap(), text);
        }
        for code in Code::ALL {
            assert_eq!(serde_json::from_str::<Told<Code>>(&format!("\"{code}\"")).unwrap(), *code);
        }
    }

    #[test]
    fn an_unknown_word_is_shown_escaped() {
        assert_eq!(Told::<Code>::Unknown("A\n\u{1b}[2J".into()).to_string(), "A\\n\\u{1b}[2J");
    }
}
