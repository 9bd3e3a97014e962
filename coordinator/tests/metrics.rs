//! The numbers for operators: what is counted, and that the text keeps to the rules of the Prometheus format. The same is
//! checked by `curl -s localhost:7117/metrics | promtool check metrics`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failure is the test's answer")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use support::{Answer, Control, Http, T1, T2, config, start};

async fn text(http: &Http) -> String {
    http.request("GET", "/metrics").send().await.unwrap().text().await.unwrap()
}

/// A sample: its name, its labels as they are written, its value.
fn samples(text: &str) -> Vec<(String, String, f64)> {
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        (name.to_owned(), labels.strip_suffix('}').unwrap().to_owned(), value.parse().unwrap())
    };
    text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).map(sample).collect()
}

fn value(text: &str, series: &str) -> f64 {
    let found = text.lines().find_map(|l| l.strip_prefix(series)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("{series} is not in {text}")).parse().unwrap()
}

/// The family of a sample: a histogram and a summary have several names.
fn family<'a>(name: &'a str, types: &BTreeMap<&str, &str>) -> &'a str {
    let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
    base.filter(|base| types.get(base).is_some_and(|t| *t == "histogram")).unwrap_or(name)
}

#[tokio::test]
async fn the_text_keeps_to_the_rules_of_the_format() {
    let handle = start(&Control::new(), config()).await;
    let http = Http::to(&handle);
    http.open("c").await;
    http.begin("c", T1).await;
    http.get("/nowhere").await;
    let text = text(&http).await;
    let about = |kind: &str| -> Vec<(&str, &str)> {
        let prefix = format!("# {kind} ");
        text.lines().filter_map(|l| l.strip_prefix(prefix.as_str())?.split_once(' ')).collect()
    };
    let types: BTreeMap<&str, &str> = about("TYPE").into_iter().collect();
    assert_eq!(types.len(), about("TYPE").len(), "every family has one type");
    let helps: BTreeMap<&str, &str> = about("HELP").into_iter().collect();
    let mut series = BTreeSet::new();
    for (name, labels, _) in samples(&text) {
        let family = family(&name, &types);
        assert!(series.insert(format!("{name}{{{labels}")), "{name}{{{labels}}} comes twice");
        assert!(helps.get(family).is_some_and(|help| !help.is_empty()), "{family} has no HELP");
        let is_counter = types.get(family).is_some_and(|t| *t == "counter");
        assert_eq!(
            is_counter,
            family.ends_with("_total"),
            "{family}: a counter ends with _total, and nothing else does"
        );
        assert!(family.starts_with("ratified_") || family.starts_with("process_"), "{family}");
        assert!(family.bytes().all(|b| matches!(b, b'a'..=b'z' | b'_')), "{family} is not in snake case");
        for unit in ["_ms", "_millis", "_minutes", "_hours", "_kb", "_mb"] {
            assert!(!family.ends_with(unit), "{family} is not in a base unit");
        }
        assert_eq!(labels.contains("le="), name.ends_with("_bucket"), "{name}{{{labels}}}");
    }
    assert_eq!(types.keys().collect::<Vec<_>>(), helps.keys().collect::<Vec<_>>());
}

#[tokio::test]
async fn calls_are_counted_by_route_and_status_and_refusals_by_code() {
    let handle = start(&Control::new(), config()).await;
    let http = Http::to(&handle);
    http.open("c").await;
    http.begin("c", T1).await;
    http.begin("c", T1).await;
    http.begin("d", T2).await;
    for path in ["/nowhere", "/v1/else/where", "/v1/clients?x=1"] {
        http.get(path).await;
    }
    for (method, path) in [("DELETE", "/v1/clients"), ("BREW", "/healthz"), ("HEAD", "/healthz")] {
        Answer::read(http.request(method, path).send().await.unwrap()).await;
    }
    http.post("/v1/clients/c/batch", json!({"operations": [{"op": "get", "txnId": T2}]})).await;
    let text = text(&http).await;
    let calls = |method: &str, route: &str, status: &str| {
        let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{status}\"");
        value(&text, &format!("ratified_http_requests_total{{{labels}}}"))
    };
    let txn = "/v1/clients/{clientName}/txns/{txnId}";
    assert_eq!(calls("POST", "/v1/clients/{clientName}/open", "200"), 1.0);
    assert_eq!((calls("PUT", txn, "201"), calls("PUT", txn, "200"), calls("PUT", txn, "404")), (1.0, 1.0, 1.0));
    assert_eq!(calls("GET", "none", "404"), 2.0, "no label takes what a caller has thought of");
    assert_eq!(calls("GET", "/v1/clients", "400"), 1.0);
    assert_eq!((calls("other", "/v1/clients", "405"), calls("other", "/healthz", "405")), (1.0, 1.0));
    assert_eq!(calls("HEAD", "/healthz", "200"), 1.0);
    let refused = |code: &str| value(&text, &format!("ratified_refusals_total{{code=\"{code}\"}}"));
    assert_eq!((refused("CLIENT_NOT_FOUND"), refused("ROUTE_NOT_FOUND"), refused("INVALID_ARGUMENT")), (1.0, 2.0, 1.0));
    assert_eq!((refused("METHOD_NOT_ALLOWED"), refused("TXN_NOT_FOUND"), refused("FENCED")), (2.0, 0.0, 0.0));
}

#[tokio::test]
async fn how_long_calls_took_is_told_by_route_and_class_of_status() {
    let handle = start(&Control::new(), config()).await;
    let http = Http::to(&handle);
    http.open("c").await;
    http.begin("c", T1).await;
    http.begin("d", T2).await;
    http.get(&format!("/v1/clients/c/txns/{T1}?waitMs=60")).await;
    let text = text(&http).await;
    let txn = "route=\"/v1/clients/{clientName}/txns/{txnId}\",status=";
    let name = "ratified_http_request_seconds";
    let of = |suffix: &str, class: &str, le: &str| value(&text, &format!("{name}_{suffix}{{{txn}\"{class}\"{le}}}"));
    assert_eq!((of("count", "2xx", ""), of("count", "4xx", "")), (2.0, 1.0));
    assert_eq!((of("bucket", "2xx", ",le=\"+Inf\""), of("bucket", "4xx", ",le=\"30\"")), (2.0, 1.0));
    assert!(of("bucket", "2xx", ",le=\"0.05\"") <= 1.0, "one of them waited for 60 ms");
    assert!(of("sum", "2xx", "") >= 0.06);
    let bounds = samples(&text).into_iter().filter(|(found, labels, _)| {
        found == &format!("{name}_bucket") && labels.starts_with("route=\"/v1/clients/{clientName}/open\"")
    });
    let counts: Vec<_> = bounds.map(|(_, _, count)| count).collect();
    assert_eq!(counts.len(), 13);
    assert!(counts.is_sorted(), "{counts:?}");
}

#[tokio::test]
async fn connections_the_process_and_the_build_are_told() {
    let handle = start(&Control::new(), config()).await;
    let silent = tokio::net::TcpStream::connect(handle.local_addr()).await.unwrap();
    let http = Http::to(&handle);
    // Accepted in the order in which they came.
    let text = text(&http).await;
    assert_eq!(value(&text, "ratified_connections_open"), 2.0);
    assert_eq!(value(&text, "ratified_connections_accepted_total"), 2.0);
    assert_eq!(value(&text, "ratified_connections_refused_total"), 0.0);
    assert_eq!(value(&text, "ratified_accept_errors_total"), 0.0);
    drop(silent);
    while value(&self::text(&http).await, "ratified_connections_open") > 1.0 {}
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(value(&text, &format!("ratified_build_info{{version=\"{version}\"}}")), 1.0);
    assert!(value(&text, "process_start_time_seconds") > 1_600_000_000.0);
    assert!(value(&text, "process_resident_memory_bytes") > 1_000_000.0);
    let (open, max) = (value(&text, "process_open_fds"), value(&text, "process_max_fds"));
    assert!(open > 3.0 && max >= open, "{open} of {max}");
    assert!(value(&text, "process_threads") >= 2.0);
    assert!(value(&text, "process_cpu_seconds_total") >= 0.0);
}
