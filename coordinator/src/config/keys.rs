//! The table of keys: what each takes, and which member it sets.

use std::{ffi::OsStr, net::SocketAddr, path::PathBuf};

use toml::Value;

use super::{Config, ServerName};

const HOUR_MS: f64 = 3_600_000.0;
/// Hours that a key in hours takes: a hundred years.
const MAX_HOURS: f64 = 876_000.0;
const GIB: u64 = 1 << 30;

/// A configuration key.
pub(super) struct Key {
    pub(super) name: &'static str,
    about: &'static str,
    kind: Kind,
}

enum Kind {
    Address { get: fn(&Config) -> SocketAddr, set: fn(&mut Config, SocketAddr) },
    Path { get: fn(&Config) -> PathBuf, set: fn(&mut Config, PathBuf) },
    Names { get: fn(&Config) -> &[ServerName], set: fn(&mut Config, Vec<ServerName>) },
    Flag { get: fn(&Config) -> bool, set: fn(&mut Config, bool) },
    Integer { unit: &'static str, min: u64, max: u64, get: fn(&Config) -> u64, set: fn(&mut Config, u64) },
    Hours { min_is_off: bool, get_ms: fn(&Config) -> Option<u64>, set_ms: fn(&mut Config, Option<u64>) },
}

macro_rules! integer {
    ($name:literal, $min:literal ..= $max:expr, $unit:literal, $($field:ident).+ $(* $scale:literal)?, $about:literal) => {
        Key {
            name: $name,
            about: $about,
            kind: Kind::Integer {
                unit: $unit,
                min: $min,
                max: $max,
                get: |c| integer!(@get c.$($field).+ $(, $scale)?),
                set: |c, n| c.$($field).+ = integer!(@set n $(, $scale)?),
            },
        }
    };
    (@get $value:expr) => { u64::try_from($value).unwrap_or(u64::MAX) };
    (@get $value:expr, $scale:literal) => { $value / $scale };
    (@set $n:ident) => { $n.try_into().unwrap_or_default() };
    (@set $n:ident, $scale:literal) => { $n.saturating_mul($scale) };
}

/// Every key.
pub(super) const KEYS: &[Key] = &[
    Key {
        name: "listen",
        about: "where to listen; port 0 takes a free one",
        kind: Kind::Address { get: |c| c.listen, set: |c, v| c.listen = v },
    },
    Key {
        name: "insecure_allow_remote",
        about: "whether to listen where other machines reach; there is no authentication",
        kind: Kind::Flag { get: |c| c.insecure_allow_remote, set: |c, v| c.insecure_allow_remote = v },
    },
    Key {
        name: "server_names",
        about: "what Host may say besides IP addresses and localhost",
        kind: Kind::Names { get: |c| &c.server_names, set: |c, v| c.server_names = v },
    },
    Key {
        name: "data_dir",
        about: "where everything durable lies; one process at a time",
        kind: Kind::Path { get: |c| c.data_dir.clone(), set: |c, v| c.data_dir = v },
    },
    integer!(
        "transaction_meta_persist_count",
        0..=1_000_000,
        "outcomes",
        limits.persist_count,
        "newest outcomes kept per client and outcome; 0 keeps none"
    ),
    Key {
        name: "transaction_meta_persist_time_in_hour",
        about: "age at which an outcome expires; never the last commit of a client",
        kind: Kind::Hours {
            min_is_off: false,
            get_ms: |c| Some(c.limits.persist_time_ms),
            set_ms: |c, v| c.limits.persist_time_ms = v.unwrap_or_default(),
        },
    },
    integer!(
        "min_committed_per_client",
        0..=10_000_000,
        "outcomes",
        limits.min_committed_per_client,
        "newest committed outcomes of a client that never expire by age: a checkpoint may list several"
    ),
    integer!(
        "transaction_meta_expire_check_interval_in_second",
        1..=86_400,
        "seconds",
        periods.expiry_ms * 1000,
        "how often expired outcomes are looked for"
    ),
    integer!(
        "timeout_sweep_interval_seconds",
        1..=86_400,
        "seconds",
        periods.timeouts_ms * 1000,
        "at least how often deadlines are looked at; the sweep also wakes at the next one"
    ),
    integer!(
        "gc_interval_seconds",
        1..=86_400,
        "seconds",
        periods.gc_ms * 1000,
        "how often outcomes beyond the count are evicted"
    ),
    integer!(
        "gc_retention_seconds",
        0..=31_536_000,
        "seconds",
        limits.gc_retention_ms * 1000,
        "no outcome younger than this is evicted by count"
    ),
    integer!(
        "max_outcomes_per_client",
        1..=10_000_000,
        "outcomes",
        limits.max_outcomes_per_client,
        "kept per client and outcome whatever their age; never less than transaction_meta_persist_count"
    ),
    Key {
        name: "client_retention_hours",
        about: "idle time after which a client with nothing left shrinks to a tombstone; 0 = never",
        kind: Kind::Hours {
            min_is_off: true,
            get_ms: |c| c.limits.client_retention_ms,
            set_ms: |c, v| c.limits.client_retention_ms = v,
        },
    },
    integer!(
        "max_clients",
        1..=100_000_000,
        "clients",
        limits.max_clients,
        "more are refused; tombstones do not count"
    ),
    integer!(
        "max_open_per_client",
        1..=1_000_000,
        "transactions",
        limits.max_open_per_client,
        "OPEN transactions of one client; more are refused"
    ),
    integer!(
        "max_unfinished_per_client",
        1..=10_000_000,
        "transactions",
        limits.max_unfinished_per_client,
        "OPEN, PREPARED, COMMITTING and ABORTING transactions of one client; more are refused; never less than \
         max_open_per_client"
    ),
    integer!(
        "max_waiting",
        0..=1_000_000,
        "requests",
        limits.max_waiting,
        "requests parked by waitMs, and calls that take several steps; beyond, the current state is answered, or 429"
    ),
    integer!("max_body_bytes", 1024..=GIB, "bytes", max_body_bytes, "largest body of a single call"),
    integer!("max_batch_body_bytes", 1024..=GIB, "bytes", max_batch_body_bytes, "largest body of a batch call"),
    integer!(
        "max_connections",
        1..=1_000_000,
        "connections",
        max_connections,
        "served at once; more wait to be accepted; fewer where the limit of open files has no room for them"
    ),
    integer!(
        "max_connections_per_address",
        0..=1_000_000,
        "connections",
        max_connections_per_address,
        "of one address (IPv6: of one /64); more are refused; 0 = half of max_connections"
    ),
    integer!("max_head_bytes", 8192..=1_048_576, "bytes", max_head_bytes, "longest head of a request"),
    integer!(
        "idle_timeout_ms",
        1..=3_600_000,
        "milliseconds",
        idle_timeout_ms,
        "how long a connection may be silent between requests, the head of the next one included"
    ),
    integer!(
        "read_timeout_ms",
        1..=3_600_000,
        "milliseconds",
        read_timeout_ms,
        "how long the body of a request may take to arrive"
    ),
    integer!(
        "write_timeout_ms",
        1..=3_600_000,
        "milliseconds",
        write_timeout_ms,
        "how long a connection may take nothing of an answer before it is cut"
    ),
    integer!(
        "max_reading_bytes",
        1024..=64 * GIB,
        "bytes",
        max_reading_bytes,
        "bodies being read at once, by what has arrived; more are refused; the first 1024 of each do not count"
    ),
    integer!(
        "max_reading_bytes_per_address",
        0..=64 * GIB,
        "bytes",
        max_reading_bytes_per_address,
        "the same of one address; 0 = half of max_reading_bytes, at least max_batch_body_bytes"
    ),
    integer!(
        "max_discard_bytes",
        0..=64 * GIB,
        "bytes",
        max_discard_bytes,
        "of a refused request that are read on, so that its sender gets to read why"
    ),
    integer!(
        "discard_timeout_ms",
        1..=60_000,
        "milliseconds",
        discard_timeout_ms,
        "how long the rest of a refused request is read on; then its connection ends"
    ),
    integer!("max_queue", 1..=10_000_000, "requests", max_queue, "waiting for the writer; more are refused"),
    integer!(
        "max_queue_bytes",
        1024..=64 * GIB,
        "bytes",
        max_queue_bytes,
        "bodies of the requests waiting for the writer; more are refused"
    ),
    integer!("max_batch_requests", 1..=1_000_000, "requests", max_batch_requests, "that share one durable write"),
    integer!(
        "max_batch_bytes",
        1024..=GIB,
        "bytes",
        max_batch_bytes,
        "bodies of the requests that share one durable write, after which no further one joins"
    ),
    integer!(
        "storage_timeout_ms",
        1..=3_600_000,
        "milliseconds",
        storage_timeout_ms,
        "how long a write and its sync may take before the process gives up"
    ),
    integer!(
        "shutdown_timeout_ms",
        0..=3_600_000,
        "milliseconds",
        shutdown_timeout_ms,
        "how long running requests are given to end at a shutdown"
    ),
    integer!(
        "writer_timeout_ms",
        1..=3_600_000,
        "milliseconds",
        writer_timeout_ms,
        "how long /readyz and /metrics wait for the writer to say that it runs"
    ),
    integer!(
        "max_log_queue_bytes",
        4096..=GIB,
        "bytes",
        max_log_queue_bytes,
        "lines of the log waiting for a stderr that takes no more; beyond, they are dropped and counted"
    ),
    integer!(
        "mark_interval_ms",
        1..=60_000,
        "milliseconds",
        mark_interval_ms,
        "at most how often the last synced batch is noted beside the store"
    ),
    integer!(
        "log_segment_bytes",
        65_536..=GIB,
        "bytes",
        log_segment_bytes,
        "longest segment of the log; the first has 1048576, each next one twice as many, and one is made ahead"
    ),
];

impl Key {
    /// The key with this name.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// Sets the key; the error says what it takes.
    pub(super) fn set(&self, config: &mut Config, value: &Value) -> Result<(), String> {
        let taken = match &self.kind {
            Kind::Address { set, .. } => value.as_str().and_then(|v| v.parse().ok()).map(|v| set(config, v)),
            Kind::Path { set, .. } => value.as_str().filter(|v| !v.is_empty()).map(|v| set(config, PathBuf::from(v))),
            Kind::Names { set, .. } => names(value).map(|v| set(config, v)),
            Kind::Flag { set, .. } => value.as_bool().map(|v| set(config, v)),
            Kind::Integer { min, max, set, .. } => {
                let number = value.as_integer().and_then(|v| u64::try_from(v).ok());
                number.filter(|v| (*min..=*max).contains(v)).map(|v| set(config, v))
            }
            Kind::Hours { min_is_off, set_ms, .. } => hours_as_ms(value).map(|ms| {
                set_ms(config, if *min_is_off && ms == 0 { None } else { Some(ms) });
            }),
        };
        taken.ok_or_else(|| format!("takes {}, not {value}", self.takes()))
    }

    /// Sets the key to what the environment or a flag says: written as in the file, but text needs no quotes, and a path
    /// is taken as it stands. The error says what the key takes.
    pub(super) fn set_text(&self, config: &mut Config, text: &OsStr) -> Result<(), String> {
        match (&self.kind, text.to_str()) {
            (Kind::Path { set, .. }, _) if !text.is_empty() => {
                set(config, PathBuf::from(text));
                Ok(())
            }
            (Kind::Path { .. } | Kind::Address { .. } | Kind::Names { .. }, Some(text)) => {
                self.set(config, &Value::from(text))
            }
            (_, Some(text)) => self.set(config, &from_text(text)),
            (_, None) => Err(format!("takes {}, not {text:?}, which is not UTF-8", self.takes())),
        }
    }

    /// What the key takes, for people.
    pub(super) fn takes(&self) -> String {
        match &self.kind {
            Kind::Address { .. } => "an address and port such as \"127.0.0.1:7117\"".to_owned(),
            Kind::Path { .. } => "a path".to_owned(),
            Kind::Names { .. } => "DNS names without ports, as a list or separated by commas".to_owned(),
            Kind::Flag { .. } => "true or false".to_owned(),
            Kind::Integer { unit, min, max, .. } => format!("a whole number of {unit}, {min}..={max}"),
            Kind::Hours { .. } => format!("a number of hours, 0..={MAX_HOURS}, fractions allowed"),
        }
    }

    /// The key as a line of the configuration file, with a comment above.
    pub(super) fn line(&self, config: &Config) -> String {
        let value = match &self.kind {
            Kind::Path { get, .. } if get(config).to_str().is_none() => {
                return format!("# {}: {:?} is not UTF-8 and cannot be in a file\n", self.name, get(config));
            }
            Kind::Address { get, .. } => Value::from(get(config).to_string()),
            Kind::Path { get, .. } => Value::from(get(config).display().to_string()),
            Kind::Names { get, .. } => {
                Value::Array(get(config).iter().map(|name| Value::from(name.as_str())).collect())
            }
            Kind::Flag { get, .. } => Value::from(get(config)),
            Kind::Integer { get, .. } => Value::from(i64::try_from(get(config)).unwrap_or(i64::MAX)),
            Kind::Hours { get_ms, .. } => ms_as_hours(get_ms(config).unwrap_or_default()),
        };
        format!("# {} ({})\n{} = {value}\n", self.about, self.takes(), self.name)
    }
}

/// A list in a file, or text with commas from the environment or a flag.
fn names(value: &Value) -> Option<Vec<ServerName>> {
    let texts: Vec<&str> = match value {
        Value::Array(items) => items.iter().map(Value::as_str).collect::<Option<_>>()?,
        Value::String(text) if text.is_empty() => Vec::new(),
        Value::String(text) => text.split(',').map(str::trim).collect(),
        _ => return None,
    };
    texts.into_iter().map(|text| text.parse().ok()).collect()
}

fn from_text(text: &str) -> Value {
    if let Ok(number) = text.parse::<i64>() {
        return Value::Integer(number);
    }
    if let Ok(number) = text.parse::<f64>() {
        return Value::Float(number);
    }
    if let Ok(flag) = text.parse::<bool>() {
        return Value::Boolean(flag);
    }
    Value::String(text.to_owned())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be 0..=876000 hours")]
fn hours_as_ms(value: &Value) -> Option<u64> {
    let hours = match value {
        Value::Integer(hours) => i32::try_from(*hours).map(f64::from).ok()?,
        Value::Float(hours) => *hours,
        _ => return None,
    };
    (0.0..=MAX_HOURS).contains(&hours).then(|| (hours * HOUR_MS).round() as u64)
}

#[expect(clippy::cast_precision_loss, reason = "a hundred years of milliseconds fit exactly")]
fn ms_as_hours(ms: u64) -> Value {
    let whole = ms / 3_600_000;
    match i64::try_from(whole) {
        Ok(hours) if whole * 3_600_000 == ms => Value::from(hours),
        _ => Value::from(ms as f64 / HOUR_MS),
    }
}
