use super::*;

const NAMES: [&str; 2] = ["ratifyd.example", "r2"];

/// What is said about a request with these headers, which are written `Name: value`.
fn said(target: &str, headers: &[&str]) -> &'static str {
    let names: Vec<ServerName> = NAMES.iter().map(|name| name.parse().unwrap()).collect();
    let mut map = HeaderMap::new();
    for line in headers {
        let (name, value) = line.split_once(": ").unwrap();
        map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    match check(&target.parse().unwrap(), &map, &names) {
        Ok(()) => "taken",
        Err(problem) => problem.code.known().unwrap().as_str(),
    }
}

#[test]
fn hosts_are_addresses_localhost_and_the_names_that_are_configured() {
    for host in [
        "127.0.0.1",
        "127.0.0.1:7117",
        "10.1.2.3:80",
        "[::1]",
        "[::1]:7117",
        "[::ffff:127.0.0.1]:1",
        "localhost",
        "LocalHost:7117",
        "localhost.",
        "ratifyd.example",
        "RATIFYD.example.:443",
        "r2:7117",
    ] {
        assert_eq!(said("/healthz", &[&format!("Host: {host}")]), "taken", "{host}");
    }
    for host in [
        "evil.example",
        "evil.example:7117",
        "ratifyd.example.evil.example",
        "evil-ratifyd.example",
        "localhost.evil.example",
        "x.localhost",
        "127.0.0.1.evil.example",
        "0x7f.1",
        "2130706433",
        "127.1",
    ] {
        assert_eq!(said("/healthz", &[&format!("Host: {host}")]), "CROSS_ORIGIN", "{host}");
    }
    for host in [
        "",
        ":80",
        "::1",
        "[::1",
        "[::1]80",
        "[127.0.0.1]",
        "localhost:x",
        "localhost:-1",
        "localhost:65536",
        "a@localhost",
        "localhost,evil.example",
        "local host",
        "localhost/",
        "localhost..",
    ] {
        assert_eq!(said("/healthz", &[&format!("Host: {host}")]), "INVALID_ARGUMENT", "{host}");
    }
}

#[test]
fn an_origin_is_the_one_that_the_host_names_or_foreign() {
    for (host, origin, expected) in [
        ("127.0.0.1:7117", "http://127.0.0.1:7117", "taken"),
        ("LOCALHOST:7117", "http://localhost:7117", "taken"),
        ("[::1]:7117", "http://[::1]:7117", "taken"),
        ("ratifyd.example", "https://ratifyd.example", "taken"),
        ("ratifyd.example:443", "https://ratifyd.example", "taken"),
        ("ratifyd.example", "http://ratifyd.example:80", "taken"),
        ("127.0.0.1:7117", "null", "CROSS_ORIGIN"),
        ("127.0.0.1:7117", "", "CROSS_ORIGIN"),
        ("127.0.0.1:7117", "http://evil.example", "CROSS_ORIGIN"),
        ("127.0.0.1:7117", "http://127.0.0.1:8000", "CROSS_ORIGIN"),
        ("127.0.0.1:7117", "http://127.0.0.1", "CROSS_ORIGIN"),
        ("127.0.0.1:7117", "http://localhost:7117", "CROSS_ORIGIN"),
        ("127.0.0.1:7117", "http://127.0.0.1:7117.evil.example", "CROSS_ORIGIN"),
        ("127.0.0.1:7117", "http://127.0.0.1:7117@evil.example", "CROSS_ORIGIN"),
        ("127.0.0.1:7117", "http://127.0.0.1:7117/", "CROSS_ORIGIN"),
        ("127.0.0.1:7117", "file://127.0.0.1:7117", "CROSS_ORIGIN"),
        ("ratifyd.example:7117", "https://ratifyd.example", "CROSS_ORIGIN"),
    ] {
        let headers = [format!("Host: {host}"), format!("Origin: {origin}")];
        assert_eq!(said("/healthz", &[&headers[0], &headers[1]]), expected, "{host} {origin}");
    }
    let twice = ["Host: localhost", "Origin: http://localhost", "Origin: http://evil.example"];
    assert_eq!(said("/healthz", &twice), "CROSS_ORIGIN");
}

#[test]
fn a_browser_tells_whose_page_asks() {
    for (site, expected) in [
        ("same-origin", "taken"),
        ("none", "taken"),
        ("same-site", "CROSS_ORIGIN"),
        ("cross-site", "CROSS_ORIGIN"),
        ("", "CROSS_ORIGIN"),
        ("Same-Origin", "CROSS_ORIGIN"),
    ] {
        assert_eq!(said("/healthz", &["Host: localhost", &format!("Sec-Fetch-Site: {site}")]), expected, "{site}");
    }
}

#[test]
fn what_two_readers_may_understand_differently_is_malformed() {
    assert_eq!(said("/healthz", &[]), "INVALID_ARGUMENT");
    assert_eq!(said("/healthz", &["Host: localhost", "Host: localhost"]), "INVALID_ARGUMENT");
    assert_eq!(said("http://localhost/healthz", &["Host: localhost"]), "INVALID_ARGUMENT");
    assert_eq!(said("localhost:80", &["Host: localhost"]), "INVALID_ARGUMENT");
    assert_eq!(said("/healthz", &["Host: localhost", "Authorization: Bearer a"]), "taken");
    let twice = ["Host: localhost", "Authorization: Bearer a", "Authorization: Bearer a"];
    assert_eq!(said("/healthz", &twice), "INVALID_ARGUMENT");
}
