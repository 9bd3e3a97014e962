//! Markers go only behind what may be asked again.

use std::time::Duration;

use ratified::{Committed, Epoch, SinkCommitter, TwoPhaseSink};

use ratified_postgres::Staging;

use crate::site::{Place, STAGINGS, open, stage, txn};

/// The committer looks at its first commit and at every 256th behind it; a committer that is made for one commit looks
/// each time.
async fn commit_one(place: &Place, staging: Staging, kept: (u32, Duration), n: u32) {
    let sink = place.builder(staging).keep_markers(kept.0, kept.1).build().unwrap();
    let (committer, mut writer) = open(&sink).await;
    let handle = stage(&mut writer, &txn(n), &[n.into()]).await;
    assert_eq!(committer.commit(&txn(n), &handle).await.unwrap(), Committed::Now);
}

fn markers(place: &Place) -> Vec<u32> {
    let ids = place.server.sql("SELECT txn_id FROM own.marker ORDER BY txn_id");
    ids.lines().map(|id| u32::from_str_radix(&id[id.len() - 8..], 16).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_marker_goes_when_it_is_old_and_has_enough_newer_ones_and_only_then() {
    for staging in STAGINGS {
        let place = Place::new();
        let (day, none) = (Duration::from_secs(86_400), Duration::ZERO);
        for n in 1..=4 {
            commit_one(&place, staging, (2, day), n).await;
        }
        assert_eq!(markers(&place), [1, 2, 3, 4], "young, however many");
        commit_one(&place, staging, (5, none), 5).await;
        assert_eq!(markers(&place), [1, 2, 3, 4, 5], "few, however old");
        commit_one(&place, staging, (3, none), 6).await;
        assert_eq!(markers(&place), [4, 5, 6]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_age_of_a_marker_counts_from_when_it_was_seen_committed() {
    let place = Place::new();
    let (committer, mut writer) = open(&place.sink(Staging::Prepared)).await;
    let handle = stage(&mut writer, &txn(1), &[1]).await;
    let day = Duration::from_secs(86_400);
    for n in 2..=4 {
        commit_one(&place, Staging::Prepared, (1, day), n).await;
    }
    // Prepared two days ago, and committed now.
    assert_eq!(committer.commit(&txn(1), &handle).await.unwrap(), Committed::Now);
    place.server.sql("UPDATE own.marker SET written_at = now() - interval '2 days'");
    commit_one(&place, Staging::Prepared, (1, day), 5).await;
    assert_eq!(committer.commit(&txn(1), &handle).await.unwrap(), Committed::Already);
    place.server.sql("UPDATE own.marker SET seen_at = now() - interval '2 days' WHERE seen_at IS NOT NULL");
    commit_one(&place, Staging::Prepared, (1, day), 6).await;
    assert_eq!(markers(&place), [6]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn markers_of_other_clients_and_sinks_stay() {
    let place = Place::new();
    let kept = (1, Duration::ZERO);
    let other = place.builder(Staging::Prepared).name("other").build().unwrap();
    let (committer, mut writer) = open(&other).await;
    let handle = stage(&mut writer, &txn(1), &[1]).await;
    assert_eq!(committer.commit(&txn(1), &handle).await.unwrap(), Committed::Now);
    let mut neighbour = txn(2);
    neighbour.client = "shop.sink.00".parse().unwrap();
    let handle = stage(&mut writer, &neighbour, &[2]).await;
    let committer = place.sink(Staging::Prepared).committer().await.unwrap();
    assert!(committer.commit(&neighbour, &handle).await.is_err(), "another sink's");
    assert_eq!(other.committer().await.unwrap().commit(&neighbour, &handle).await.unwrap(), Committed::Now);
    for n in 3..=5 {
        commit_one(&place, Staging::Prepared, kept, n).await;
    }
    assert_eq!(markers(&place), [1, 2, 5]);
    assert_eq!(txn(1).epoch, Epoch::FIRST);
}
