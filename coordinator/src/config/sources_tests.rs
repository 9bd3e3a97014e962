use super::*;

fn file(text: &str) -> Sources {
    Sources { file: Some((PathBuf::from("r.toml"), text.to_owned())), ..Sources::default() }
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, OsString)> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), v.into())).collect()
}

fn refused(sources: &Sources) -> String {
    sources.resolve().unwrap_err().to_string()
}

#[test]
fn the_defaults_are_those_of_the_seeds() {
    let config = Sources::default().resolve().unwrap();
    assert_eq!(config.limits.persist_count, 64);
    assert_eq!(config.limits.persist_time_ms, 72 * 3_600_000);
    assert_eq!(config.periods, crate::Periods { timeouts_ms: 60_000, expiry_ms: 300_000, gc_ms: 300_000 });
    assert_eq!(config.limits.gc_retention_ms, 900_000);
    assert_eq!(config.limits.max_outcomes_per_client, 10_000);
    assert_eq!(config.limits.client_retention_ms, None);
    assert_eq!((config.limits.max_clients, config.limits.max_open_per_client), (1_000_000, 1000));
    assert_eq!((config.max_body_bytes, config.max_batch_body_bytes), (1_048_576, 8_388_608));
    assert!(config.listen.ip().is_loopback());
}

#[test]
fn flags_win_over_the_environment_which_wins_over_the_file() {
    let mut sources = file("max_queue = 1\nmax_waiting = 1\nmax_clients = 1");
    sources.environment = pairs(&[("RATIFIED_MAX_QUEUE", "2"), ("RATIFIED_MAX_WAITING", "2")]);
    sources.flags = pairs(&[("max_queue", "3")]);
    let config = sources.resolve().unwrap();
    assert_eq!((config.max_queue, config.limits.max_waiting, config.limits.max_clients), (3, 2, 1));
}

#[test]
fn hours_may_be_fractions_and_zero_hours_of_retention_are_for_ever() {
    let config = file("transaction_meta_persist_time_in_hour = 0.001\nclient_retention_hours = 0").resolve().unwrap();
    assert_eq!(config.limits.persist_time_ms, 3600);
    assert_eq!(config.limits.client_retention_ms, None);
    let config = file("transaction_meta_persist_time_in_hour = 1\nclient_retention_hours = 0.5").resolve().unwrap();
    assert_eq!(config.limits.persist_time_ms, 3_600_000);
    assert_eq!(config.limits.client_retention_ms, Some(1_800_000));
}

#[test]
fn a_refusal_names_file_key_and_what_is_allowed() {
    for (text, message) in [
        ("max_queue = 0", "r.toml: max_queue: takes a whole number of requests, 1..=10000000, not 0"),
        ("max_queue = 1.5", "r.toml: max_queue: takes a whole number of requests, 1..=10000000, not 1.5"),
        (
            "gc_interval_seconds = \"5m\"",
            "r.toml: gc_interval_seconds: takes a whole number of seconds, 1..=86400, not \"5m\"",
        ),
        (
            "transaction_meta_persist_time_in_hour = -1",
            "r.toml: transaction_meta_persist_time_in_hour: takes a number of hours, 0..=876000, fractions allowed, not -1",
        ),
        ("insecure_allow_remote = 1", "r.toml: insecure_allow_remote: takes true or false, not 1"),
        ("listen = \"here\"", "r.toml: listen: takes an address and port such as \"127.0.0.1:7117\", not \"here\""),
        ("data_dir = \"\"", "r.toml: data_dir: takes a path, not \"\""),
        ("gc_interval_ms = 5", "r.toml: gc_interval_ms: is not a key; the keys are listen, "),
        ("max_queue = ", "r.toml: TOML: "),
        ("max_batch_body_bytes = 2048", "max_batch_body_bytes: 2048 is less than max_body_bytes, 1048576"),
        ("max_queue_bytes = 2048", "max_queue_bytes: 2048 is less than max_batch_body_bytes, 8388608"),
        ("max_reading_bytes = 2048", "max_reading_bytes: 2048 is less than max_batch_body_bytes, 8388608"),
        ("listen = \"0.0.0.0:7117\"", "listen: 0.0.0.0:7117 can be reached from other machines"),
    ] {
        let refusal = refused(&file(text));
        assert!(refusal.starts_with(message), "{text}: {refusal}");
    }
}

#[test]
fn the_environment_and_flags_are_named_too() {
    let environment = pairs(&[("RATIFIED_MAX_QUEUE", "many")]);
    let refusal = refused(&Sources { environment, ..Sources::default() });
    let takes = "max_queue: takes a whole number of requests, 1..=10000000, not \"many\"";
    assert_eq!(refusal, format!("environment variable RATIFIED_MAX_QUEUE: {takes}"));
    let flags = pairs(&[("max_queue", "many")]);
    assert_eq!(refused(&Sources { flags, ..Sources::default() }), format!("flag: {takes}"));
    let flags = pairs(&[("no_such", "1")]);
    assert!(refused(&Sources { flags, ..Sources::default() }).starts_with("flag: no_such: is not a key"));
}

/// Whatever else the name of a directory could be read as.
#[test]
fn a_path_is_taken_as_it_stands() {
    for name in ["7117", "true", "1e5", "inf", "-1", "a b", "\"quoted\""] {
        let sources = Sources { flags: pairs(&[("data_dir", name)]), ..Sources::default() };
        assert_eq!(sources.resolve().unwrap().data_dir, PathBuf::from(name));
        let sources = Sources { environment: pairs(&[("RATIFIED_DATA_DIR", name)]), ..Sources::default() };
        assert_eq!(sources.resolve().unwrap().data_dir, PathBuf::from(name));
    }
    let named = Sources { flags: pairs(&[("server_names", "true,7117")]), ..Sources::default() };
    assert!(named.resolve().unwrap().describe().contains("server_names = [\"true\", \"7117\"]"));
    let empty = Sources { flags: pairs(&[("data_dir", "")]), ..Sources::default() };
    assert_eq!(refused(&empty), "flag: data_dir: takes a path, not \"\"");
}

#[cfg(unix)]
#[test]
fn only_a_path_need_not_be_utf_8() {
    use std::os::unix::ffi::OsStringExt;
    let bytes = || OsString::from_vec(b"bad\xff".to_vec());
    let sources = Sources { flags: vec![("data_dir".to_owned(), bytes())], ..Sources::default() };
    let config = sources.resolve().unwrap();
    assert_eq!(config.data_dir, PathBuf::from(bytes()));
    let line = "# data_dir: \"bad\\xFF\" is not UTF-8 and cannot be in a file";
    assert!(config.describe().lines().any(|l| l == line), "{}", config.describe());
    let environment = vec![("RATIFIED_MAX_CLIENTS".to_owned(), bytes())];
    assert_eq!(
        refused(&Sources { environment, ..Sources::default() }),
        "environment variable RATIFIED_MAX_CLIENTS: max_clients: takes a whole number of clients, 1..=100000000, \
         not \"bad\\xFF\", which is not UTF-8"
    );
}

#[test]
fn variables_of_other_programs_are_left_alone_and_reported() {
    let environment = pairs(&[("RATIFIED_URL", "x"), ("RATIFIED_MAX_QUEUE", "5"), ("PATH", "y")]);
    let sources = Sources { environment, ..Sources::default() };
    assert_eq!(sources.resolve().unwrap().max_queue, 5);
    assert_eq!(sources.unknown_variables(), ["RATIFIED_URL"]);
}

#[test]
fn an_address_that_others_reach_is_taken_when_it_is_asked_for() {
    let config = file("listen = \"0.0.0.0:7117\"\ninsecure_allow_remote = true").resolve().unwrap();
    assert_eq!(config.listen.to_string(), "0.0.0.0:7117");
}

#[test]
fn what_is_printed_is_read_back_as_the_same() {
    let text =
        "max_queue = 7\ntransaction_meta_persist_time_in_hour = 0.25\nclient_retention_hours = 3\ndata_dir = \"d\"";
    let config = file(text).resolve().unwrap();
    assert_eq!(file(&config.describe()).resolve().unwrap(), config);
    let defaults = Config::default();
    assert_eq!(file(&defaults.describe()).resolve().unwrap(), defaults);
}

#[test]
fn every_key_is_printed_once_with_what_it_takes() {
    let printed = Config::default().describe();
    for key in KEYS {
        assert_eq!(printed.lines().filter(|l| l.starts_with(&format!("{} = ", key.name))).count(), 1, "{}", key.name);
        assert!(printed.contains(&key.takes()), "{}", key.name);
    }
}
