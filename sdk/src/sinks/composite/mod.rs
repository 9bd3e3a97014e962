//! Several sinks under one decision: what a transaction writes becomes visible in all of them, or in none.
//!
//! ```text
//! begin, write, pre_commit      every member, each with the records that its route makes of the job's
//! the coordinator decides       once, for all of them
//! commit                        member by member in the order in which they were added, each to its end
//! ```
//!
//! A member is any [`TwoPhaseSink`], under a name of its own, with a function that turns a record of the job into any
//! number of the member's records. Members may be of different kinds or of one; how many there are may be known at run
//! time only.
//!
//! What must be known:
//! * Members become visible one after the other, not at one instant. A crash in between is mended by the next commit of
//!   the same transaction: the decision is one and never reverts.
//! * Each member needs a place of its own: a root, a prefix, a [name](crate::TwoPhaseSink::places) in a database that no
//!   other member has. All of them see the same client and transaction id, and what a sink derives from these must not meet.
//!   Two members that say they are in one place are refused, when the composite is built and when it is opened.
//! * A member's name travels with every transaction. To remove or rename a member, finish what is pending first: a
//!   transaction that names a member which is not there any more is refused, with its name. Adding one is always safe.
//! * A member that cannot commit for now does not hold up the others; the commit is then repeated, for all of them. One
//!   that refuses after the decision stops the job, but not before all others have committed.
//! * The handles of all members together must fit into one transaction's payload, [`MAX_HANDLE_BYTES`] less the source's
//!   position; the error says which member takes how much.
//!
//! ```
//! # use ratified::sinks::{composite::Composite, file::FileSink};
//! # #[derive(serde::Serialize, Clone)] struct Order { id: u64, cents: i64 }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let orders = FileSink::json_lines("out/orders", "orders".parse()?).build()?;
//! let sums = FileSink::json_lines("out/sums", "sums".parse()?).build()?;
//! let sink = Composite::builder()
//!     .member("orders", orders, |order: &Order, rows: &mut Vec<Order>| rows.push(order.clone()))
//!     .member("sums", sums, |order: &Order, rows: &mut Vec<i64>| rows.push(order.cents))
//!     .build()?;
//! # let _ = sink; Ok(()) }
//! ```

mod committer;
mod failures;
mod handle;
mod member;
mod names;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use async_trait::async_trait;

use self::member::{Member, TypedMember};
use crate::{
    error::SinkError,
    sink::{Place, TwoPhaseSink},
};

pub use self::{
    committer::CompositeCommitter,
    handle::{CompositeHandle, MAX_HANDLE_BYTES},
    names::{CompositeError, MAX_MEMBERS, MAX_NAME_CHARS, MemberName},
    writer::CompositeWriter,
};

/// Several sinks that are written to as one. See the [module](self) for what must be known.
pub struct Composite<R> {
    members: Arc<[Box<dyn Member<R>>]>,
}

impl<R: Send + 'static> Composite<R> {
    /// A sink without members, to be given some.
    pub fn builder() -> CompositeBuilder<R> {
        CompositeBuilder { members: Vec::new(), refused: None }
    }

    /// The names of the members, in the order in which they commit.
    pub fn member_names(&self) -> Vec<MemberName> {
        self.members.iter().map(|member| member.name().clone()).collect()
    }
}

impl<R> Clone for Composite<R> {
    fn clone(&self) -> Self {
        Self { members: self.members.clone() }
    }
}

impl<R> fmt::Debug for Composite<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.members.iter().map(|member| member.name()).collect();
        f.debug_struct("Composite").field("members", &names).finish_non_exhaustive()
    }
}

/// A composite that is being put together.
pub struct CompositeBuilder<R> {
    members: Vec<Box<dyn Member<R>>>,
    refused: Option<CompositeError>,
}

impl<R: Send + 'static> CompositeBuilder<R> {
    /// Adds a member; they commit in the order in which they are added. `route` turns a record of the job into those of
    /// this member, any number of them. The name is 1..=32 characters of `A-Z a-z 0-9 _ -`, and the member's for ever.
    #[must_use]
    pub fn member<S: TwoPhaseSink>(
        mut self,
        name: &str,
        sink: S,
        route: impl Fn(&R, &mut Vec<S::Record>) + Send + Sync + 'static,
    ) -> Self {
        match name.parse() {
            Ok(name) => self.members.push(Box::new(TypedMember::new(name, sink, route))),
            Err(error) => self.refused = self.refused.or(Some(error)),
        }
        self
    }

    /// The sink. Changes nothing in any member's place.
    ///
    /// # Errors
    /// The caller must mend the member that the error names.
    pub fn build(self) -> Result<Composite<R>, CompositeError> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        if self.members.is_empty() || self.members.len() > MAX_MEMBERS {
            return Err(CompositeError::Count { count: self.members.len() });
        }
        for (index, member) in self.members.iter().enumerate() {
            if self.members.iter().skip(index + 1).any(|other| other.name() == member.name()) {
                return Err(CompositeError::Twice { name: member.name().clone() });
            }
        }
        apart(&self.members)?;
        Ok(Composite { members: self.members.into() })
    }
}

/// Refuses two members in one place.
fn apart<R>(members: &[Box<dyn Member<R>>]) -> Result<(), CompositeError> {
    let mut taken = BTreeMap::new();
    for member in members {
        for place in member.places().into_iter().collect::<BTreeSet<_>>() {
            if let Some(first) = taken.insert(place.clone(), member.name()) {
                return Err(CompositeError::SamePlace { first: first.clone(), second: member.name().clone(), place });
            }
        }
    }
    Ok(())
}

#[async_trait]
impl<R: Send + 'static> TwoPhaseSink for Composite<R> {
    type Record = R;
    type Handle = CompositeHandle;
    type Writer = CompositeWriter<R>;
    type Committer = CompositeCommitter;

    fn places(&self) -> Vec<Place> {
        self.members.iter().flat_map(|member| member.places()).collect()
    }

    async fn writer(&self) -> Result<CompositeWriter<R>, SinkError> {
        let mut writers = Vec::with_capacity(self.members.len());
        for member in &*self.members {
            writers.push(failures::named(member.name(), member.writer().await)?);
        }
        Ok(CompositeWriter::new(writers))
    }

    async fn committer(&self) -> Result<CompositeCommitter, SinkError> {
        // Again: a link may lead elsewhere than when it was built.
        apart(&self.members).map_err(|error| SinkError::rejected(error.to_string()))?;
        let mut committers = Vec::with_capacity(self.members.len());
        for member in &*self.members {
            committers.push(failures::named(member.name(), member.committer().await)?);
        }
        Ok(CompositeCommitter::new(committers))
    }
}
