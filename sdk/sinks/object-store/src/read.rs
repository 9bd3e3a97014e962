//! Finding what was committed, for tests, examples and small jobs.

use futures_util::TryStreamExt;
use object_store::{Error, ObjectStore, path::Path};
use ratified::{Slot, TxnId, author::TargetName};

use super::names::{Layout, ObjectKey};

/// A visible object of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommittedObject {
    /// Its key.
    pub location: Path,
    /// How many bytes it has.
    pub bytes: u64,
    /// The worker that wrote it.
    pub slot: Slot,
    /// The transaction that wrote it.
    pub txn_id: TxnId,
}

/// The visible objects of a target under a prefix, by slot, then by transaction, then as they were written: the order of
/// the output. What has another name is none of ours.
///
/// # Errors
/// The store cannot be listed; the caller must mend what the error names.
pub async fn committed_objects(
    store: &impl ObjectStore,
    prefix: &str,
    target: &TargetName,
) -> Result<Vec<CommittedObject>, Error> {
    let Some(layout) = Layout::new(prefix) else {
        return Err(Error::NotSupported { source: format!("{prefix:?} is no prefix of a sink").into() });
    };
    let folder = layout.target_folder(target);
    let listed: Vec<_> = store.list(Some(&folder)).try_collect().await?;
    let mut objects: Vec<_> = listed
        .into_iter()
        .filter_map(|meta| Some((ObjectKey::parse(meta.location.as_ref())?, meta)))
        .filter(|(key, _)| *key.layout() == layout)
        .collect();
    objects.sort_by_key(|(key, _)| (key.slot(), key.txn_id(), key.number()));
    let told = objects.into_iter().map(|(key, meta)| CommittedObject {
        location: meta.location,
        bytes: meta.size,
        slot: key.slot(),
        txn_id: key.txn_id(),
    });
    Ok(told.collect())
}
