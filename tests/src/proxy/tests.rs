use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Router, extract::Request};

use super::{Call, Fault, Proxy, only, pass, seeded};
use crate::{poll, process::Address};

/// A server that counts its requests and tells each its number.
async fn counting() -> (Address, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::fixed(listener.local_addr().unwrap());
    let counter = count.clone();
    let router = Router::new().fallback(move |request: Request| {
        let n = counter.fetch_add(1, Ordering::SeqCst) + 1;
        async move { format!("answer {n} to {} {}", request.method(), request.uri()) }
    });
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, count)
}

/// A status and a body, or nothing that could be read.
async fn ask(proxy: &Proxy, path: &str) -> Option<(u16, String)> {
    let client = reqwest::Client::builder().timeout(Duration::from_millis(300)).build().unwrap();
    let answer = client.put(format!("{}{path}", proxy.url())).body("body").send().await.ok()?;
    Some((answer.status().as_u16(), answer.text().await.ok()?))
}

#[tokio::test]
async fn each_fault_is_what_it_says() {
    let path = "/v1/clients/c/txns/1";
    let first = Some((200, format!("answer 1 to PUT {path}")));
    for (fault, seen, forwarded) in [
        (Fault::Pass, first, 1),
        (Fault::DropRequest, None, 0),
        (Fault::DropAnswer, None, 1),
        (Fault::DelayAnswer, None, 1),
        (Fault::DuplicateRequest, Some((200, format!("answer 2 to PUT {path}"))), 2),
        (Fault::TruncateAnswer, None, 1),
        (Fault::Unavailable, Some((503, "no healthy upstream".to_owned())), 0),
        (Fault::TooMany, Some((429, "slow down".to_owned())), 0),
        (Fault::Html, Some((200, "<html><body>Please log in</body></html>".to_owned())), 0),
        (Fault::EmptyBody, Some((200, String::new())), 0),
    ] {
        let (upstream, count) = counting().await;
        let proxy = Proxy::start(upstream, only(fault)).await;
        assert_eq!(ask(&proxy, path).await, seen, "{fault:?}");
        assert_eq!(count.load(Ordering::SeqCst), forwarded, "{fault:?}");
        assert_eq!(proxy.injected().get(&fault), Some(&1));
        assert_eq!(proxy.seen("begin"), 1);
    }
}

#[tokio::test]
async fn a_late_request_arrives_after_the_next_transaction_has_begun() {
    let (upstream, count) = counting().await;
    let proxy = Proxy::start(upstream, only(Fault::LateRequest)).await;
    assert_eq!(ask(&proxy, "/v1/clients/c/txns/1").await, None);
    assert_eq!(count.load(Ordering::SeqCst), 0);
    let next = "/v1/clients/c/txns/2";
    assert_eq!(ask(&proxy, next).await, Some((200, format!("answer 1 to PUT {next}"))));
    poll::until_some("the late request", || (count.load(Ordering::SeqCst) == 2).then_some(())).await;
}

#[tokio::test]
async fn a_delayed_answer_arrives_when_the_next_transaction_has_begun() {
    let (upstream, _) = counting().await;
    let proxy = Arc::new(Proxy::start(upstream, only(Fault::DelayAnswer)).await);
    let slow = tokio::spawn({
        let proxy = proxy.clone();
        async move {
            let client = reqwest::Client::new();
            let answer = client.put(format!("{}/v1/clients/c/txns/1", proxy.url())).send().await.unwrap();
            answer.text().await.unwrap()
        }
    });
    poll::until_some("the first request", || (proxy.seen("begin") == 1).then_some(())).await;
    while !slow.is_finished() {
        ask(&proxy, &format!("/v1/clients/c/txns/{}", proxy.seen("begin") + 1)).await;
    }
    assert_eq!(slow.await.unwrap(), "answer 1 to PUT /v1/clients/c/txns/1");
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    let draw = |seed| {
        let mut policy = seeded(seed, 50);
        (0..500).map(|nth| policy(&Call { kind: "commit", nth, path: "" })).collect::<Vec<_>>()
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
    let drawn = draw(1);
    assert!(Fault::ALL.iter().all(|fault| drawn.contains(fault)), "each one comes");
    let passed = drawn.iter().filter(|fault| **fault == Fault::Pass).count();
    assert!((200..300).contains(&passed), "{passed}");
    assert_eq!(pass()(&Call { kind: "commit", nth: 0, path: "" }), Fault::Pass);
}
