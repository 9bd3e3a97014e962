//! The SDK through a network that loses, repeats, delays and damages: the true outcome every time, every record once.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

use ratified_tests::{
    config::Config,
    pipeline::{Plan, check_exactly_once, run_engine, run_split},
    process::Ratifyd,
    proxy::{Fault, Policy, Proxy, only, seeded},
    tally,
};
use serde_json::json;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Driver {
    Split,
    Engine,
}

/// Runs a pipeline through a proxy with this policy and checks what came out.
async fn run(driver: Driver, policy: Policy) -> Proxy {
    let ratifyd = Ratifyd::start(Config::new()).await;
    let proxy = Proxy::start(ratifyd.address(), policy).await;
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan::new(proxy.url(), dir.path());
    match driver {
        Driver::Split => drop(run_split(&plan).await.unwrap()),
        Driver::Engine => run_engine(&plan).await.unwrap(),
    }
    check_exactly_once(&plan.out(), plan.records).unwrap();
    // A late duplicate may still be on its way; whatever it is, it changes nothing that was decided.
    let raw = ratifyd.raw();
    let live = raw.get("/v1/txns").await.ok(200);
    assert_eq!(live["items"], json!([]), "nothing is left unfinished");
    let committed = raw.get("/v1/txns?state=COMMITTED").await.ok(200);
    assert_eq!(committed["items"].as_array().unwrap().len(), 4);
    assert_eq!(raw.get("/v1/txns?state=ABORTED").await.ok(200)["items"], json!([]));
    proxy
}

async fn survives(fault: Fault) {
    for driver in [Driver::Split, Driver::Engine] {
        let proxy = run(driver, only(fault)).await;
        let injected = proxy.injected();
        assert!(injected[&fault] >= 6, "{driver:?}: {injected:?}");
        for call in ["open", "begin", "commit", "ack"] {
            assert!(proxy.seen(call) >= 1, "{driver:?}: no {call} met {fault:?}");
        }
    }
}

macro_rules! survives {
    ($($name:ident: $fault:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                survives(Fault::$fault).await;
            }
        )*
    };
}

survives! {
    requests_that_are_lost_are_sent_again: DropRequest,
    answers_that_are_lost_are_asked_for_again: DropAnswer,
    answers_that_arrive_after_the_next_transaction_has_begun_confuse_nobody: DelayAnswer,
    requests_that_arrive_behind_their_own_repetition_change_nothing: LateRequest,
    requests_that_arrive_twice_take_effect_once: DuplicateRequest,
    half_an_answer_is_none: TruncateAnswer,
    a_503_is_asked_again: Unavailable,
    a_429_is_asked_again: TooMany,
    a_200_with_a_page_for_people_is_no_answer: Html,
    a_200_without_a_body_is_no_answer: EmptyBody,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_mixture_of_faults_is_survived() {
    let mut injected = std::collections::BTreeMap::<Fault, u64>::new();
    for seed in 1..=12 {
        let driver = if seed % 2 == 0 { Driver::Split } else { Driver::Engine };
        tally::seed(&format!("mixed network faults, {driver:?}"), seed);
        let proxy = run(driver, seeded(seed, 35)).await;
        for (fault, count) in proxy.injected() {
            *injected.entry(fault).or_default() += count;
        }
    }
    println!("injected: {injected:?}");
    for fault in Fault::ALL {
        assert!(injected.get(&fault).is_some_and(|count| *count >= 2), "{fault:?} hardly came: {injected:?}");
    }
}
