//! Which request meets which fault.

use std::hash::{DefaultHasher, Hash, Hasher};

/// What happens to one request and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// Nothing.
    Pass,
    /// It is never forwarded; the connection is reset.
    DropRequest,
    /// It is forwarded and answered, and the connection is reset instead.
    DropAnswer,
    /// It is forwarded; the answer is held back until another transaction has begun or the caller has given up.
    DelayAnswer,
    /// It is held back until the caller has given up, and forwarded then, behind whatever the caller did instead.
    LateRequest,
    /// It is forwarded twice; the second answer is passed on.
    DuplicateRequest,
    /// It is forwarded; half of the answer's body is passed on.
    TruncateAnswer,
    /// It is not forwarded; the answer is 503, not the coordinator's.
    Unavailable,
    /// It is not forwarded; the answer is 429 with `Retry-After`.
    TooMany,
    /// It is not forwarded; the answer is 200 with a page for people.
    Html,
    /// It is not forwarded; the answer is 200 without a body.
    EmptyBody,
}

impl Fault {
    /// Everything that can go wrong.
    pub const ALL: [Self; 10] = [
        Self::DropRequest,
        Self::DropAnswer,
        Self::DelayAnswer,
        Self::LateRequest,
        Self::DuplicateRequest,
        Self::TruncateAnswer,
        Self::Unavailable,
        Self::TooMany,
        Self::Html,
        Self::EmptyBody,
    ];
}

/// A request as a policy sees it.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// `begin`, `prepare`, `commit`, `open` and so on.
    pub kind: &'a str,
    /// How many calls of this kind were seen before.
    pub nth: u64,
    /// The path, with the query.
    pub path: &'a str,
}

/// Decides what happens to a request.
pub type Policy = Box<dyn FnMut(&Call<'_>) -> Fault + Send>;

/// Nothing goes wrong.
pub fn pass() -> Policy {
    Box::new(|_| Fault::Pass)
}

/// Every second call of each kind meets this fault, beginning with the first.
pub fn only(fault: Fault) -> Policy {
    Box::new(move |call| if call.nth.is_multiple_of(2) { fault } else { Fault::Pass })
}

/// So many of a hundred calls meet a fault, any of them. The n-th call of a kind meets the same one in every run with
/// the same seed.
pub fn seeded(seed: u64, percent: u64) -> Policy {
    Box::new(move |call| {
        let mut hasher = DefaultHasher::new();
        (seed, call.kind, call.nth).hash(&mut hasher);
        let drawn = hasher.finish();
        if drawn % 100 >= percent {
            return Fault::Pass;
        }
        let at = usize::try_from(drawn / 100 % Fault::ALL.len() as u64).unwrap_or_default();
        Fault::ALL[at]
    })
}

/// The kind of a call: the last word of its path, or what its method means there.
pub(super) fn kind_of(method: &str, path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let words: Vec<_> = path.split('/').skip(1).collect();
    match (method, words.as_slice()) {
        ("PUT", [_, "clients", _, "txns", _]) => "begin".to_owned(),
        ("GET", [_, "clients", _, "txns", _]) => "get".to_owned(),
        ("PUT", [.., "participants", _]) => "register".to_owned(),
        (_, [.., last]) => (*last).to_owned(),
        _ => String::new(),
    }
}
