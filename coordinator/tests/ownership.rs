//! Several coordinators in one process: what one of them loses or fails at ends that one, and its handle says why.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failure is the test's answer")]

mod support;

use ratified_coordinator::{Coordinator, Failure};
use support::{Control, Fails, Http, T1, T2, TestStore, config, start};

#[tokio::test]
async fn a_store_that_another_load_has_taken_is_given_up_and_no_other_is() {
    let (shared, own) = (Control::new(), Control::new());
    shared.share();
    let first = start(&shared, config()).await;
    let bystander = start(&own, config()).await;
    Http::to(&first).open("c").await;
    Http::to(&bystander).open("c").await;
    let second = start(&shared, config()).await;
    let writes = shared.writes();

    assert_eq!(Http::to(&first).begin("c", T1).await.refusal(), (503, "STORAGE_UNAVAILABLE"));
    assert_eq!(shared.writes(), writes, "nothing of the first load is written any more");
    let failure = first.wait().await.unwrap_err();
    assert!(matches!(*failure, Failure::LostOwnership(_)), "{failure}");
    assert_eq!(
        failure.to_string(),
        "the store was given up: the store was taken by another coordinator: load 2 follows ours, 1"
    );
    assert_eq!(Http::to(&first).get("/readyz").await.refusal(), (503, "STORAGE_UNAVAILABLE"));
    assert_eq!(Http::to(&second).begin("c", T1).await.status, 201);
    assert_eq!(Http::to(&bystander).begin("c", T2).await.status, 201);
}

#[tokio::test]
async fn a_store_that_fails_ends_its_own_coordinator_only() {
    let (failing, own) = (Control::new(), Control::new());
    let first = start(&failing, config()).await;
    let bystander = start(&own, config()).await;
    Http::to(&bystander).open("c").await;
    failing.fail(Fails::Refuse);
    assert_eq!(Http::to(&first).open("c").await.refusal(), (503, "STORAGE_UNAVAILABLE"));
    let failure = first.wait().await.unwrap_err();
    assert!(matches!(*failure, Failure::Storage(_)), "{failure}");
    assert_eq!(failure.to_string(), "the store failed: write was refused: no space left");
    assert_eq!(Http::to(&bystander).begin("c", T1).await.status, 201);
}

/// What was read may be the past by the time it could be told.
#[tokio::test]
async fn nothing_is_served_before_the_store_is_confirmed_to_be_ours() {
    let control = Control::new();
    control.fail(Fails::Confirm);
    let store = Box::new(TestStore(control.clone()));
    let mut handle = Coordinator::listen_with(config(), store).await.unwrap();
    let refusal = handle.loaded().await.unwrap_err().to_string();
    assert_eq!(refusal, "the load is refused: the store was taken by another coordinator: load 2 follows ours, 1");
    assert_eq!(control.confirms(), 1);
    assert_eq!(Http::to(&handle).get("/readyz").await.refusal(), (503, "STORAGE_UNAVAILABLE"));
}
