//! File descriptors: the store's come first, connections have what is left.

use rustix::process::{Resource, getrlimit};

/// What is kept for the store (its directory, lock, mark, the segment in use and the next) and the rest of the process.
const RESERVED: u64 = 256;

/// How many connections there is room for when this many were configured; a lower number is told in the log.
pub(super) fn connections(configured: usize) -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    let room = room(limit, configured);
    if room < configured {
        tracing::warn!(
            descriptors = limit,
            max_connections = room,
            configured,
            "the limit of open files leaves room for fewer connections than configured; raise it (ulimit -n, LimitNOFILE)"
        );
    }
    room
}

/// `None` is no limit. Of a small one the store has half.
fn room(limit: Option<u64>, configured: usize) -> usize {
    let Some(limit) = limit else { return configured };
    let left = limit.saturating_sub(RESERVED).max(limit / 2).max(1);
    configured.min(usize::try_from(left).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_what_the_store_leaves() {
        for (limit, configured, expected) in [
            (None, 10_000, 10_000),
            (Some(1_048_576), 10_000, 10_000),
            (Some(10_256), 10_000, 10_000),
            (Some(10_255), 10_000, 9_999),
            (Some(1024), 10_000, 768),
            (Some(1024), 500, 500),
            (Some(512), 10_000, 256),
            (Some(100), 10_000, 50),
            (Some(0), 10_000, 1),
        ] {
            assert_eq!(room(limit, configured), expected, "{limit:?} {configured}");
        }
    }
}
