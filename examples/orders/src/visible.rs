//! What is in both places, and whether it is what was committed.

use ratified::Cause;
use thiserror::Error;

use crate::{
    basket::Tally,
    cents::Amounts,
    lake::{Lake, LakeError},
    tables::Tables,
};

/// Why what is visible cannot be judged, or is not what was committed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VisibleError {
    /// PostgreSQL says no. The caller must mend what it says.
    #[error("PostgreSQL: {0}")]
    Tables(Cause),
    /// The store cannot be used.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// What is visible is not what was committed: somebody removed or added something.
    #[error(
        "{committed} {what} were committed, and {visible} are there; to start over, drop the schema and remove --store and \
         --data-dir"
    )]
    Tampered {
        /// Of what.
        what: &'static str,
        /// How many, or how much, were committed.
        committed: i64,
        /// How many are there.
        visible: i64,
    },
}

/// What is in both places.
#[derive(Debug, Clone, Copy, Default)]
pub struct Visible {
    /// Baskets in PostgreSQL.
    pub baskets: u64,
    /// Items, as the baskets in PostgreSQL have counted them.
    pub items: u64,
    /// Items in the store.
    pub stored_items: u64,
    /// Sums of the baskets in PostgreSQL.
    pub amounts: Amounts,
    /// Sums of the items in the store.
    pub stored_amounts: Amounts,
    /// Refused rows in PostgreSQL.
    pub rejects: u64,
}

impl Visible {
    /// Counts and sums up what is visible in both places.
    ///
    /// # Errors
    /// See [`VisibleError`].
    pub async fn of(tables: &Tables, lake: &Lake) -> Result<Self, VisibleError> {
        let sums = tables.sums().await.map_err(VisibleError::Tables)?;
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        let mut visible =
            Self { baskets: count(sums.basket), items: count(sums.items), amounts: sums.amounts, ..Self::default() };
        tables.each_reject(|_| visible.rejects += 1).await.map_err(VisibleError::Tables)?;
        let mut total = Some(Amounts::default());
        lake.each_item(|item| {
            visible.stored_items += 1;
            total = total.and_then(|total| total.plus(&item.amounts));
        })
        .await?;
        visible.stored_amounts = total.unwrap_or_default();
        Ok(visible)
    }

    /// Checks that it is what was committed, in both places, to the cent.
    ///
    /// # Errors
    /// [`VisibleError::Tampered`].
    pub fn check(&self, tally: &Tally) -> Result<(), VisibleError> {
        let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let counts = [
            ("baskets", tally.baskets, self.baskets),
            ("items of the baskets in PostgreSQL", tally.items, self.items),
            ("items in the store", tally.items, self.stored_items),
            ("refused rows", tally.rejects, self.rejects),
        ];
        let counts = counts.map(|(what, committed, visible)| (what, signed(committed), signed(visible)));
        let [in_tables, in_store] =
            [("cents in PostgreSQL", self.amounts), ("cents in the store", self.stored_amounts)].map(
                |(what, visible)| {
                    let pairs = tally.amounts.to_cents().into_iter().zip(visible.to_cents());
                    pairs.map(move |(committed, visible)| (what, committed, visible))
                },
            );
        for (what, committed, visible) in counts.into_iter().chain(in_tables).chain(in_store) {
            if committed != visible {
                return Err(VisibleError::Tampered { what, committed, visible });
            }
        }
        Ok(())
    }
}
