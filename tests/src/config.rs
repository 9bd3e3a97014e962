//! The coordinator's configuration file, as an operator writes it.

use std::{collections::BTreeMap, fmt::Display};

/// Keys and values of a TOML file; what is not set keeps its default.
#[derive(Debug, Clone, Default)]
pub struct Config(BTreeMap<String, String>);

impl Config {
    /// Nothing but defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same configuration with this key set; the value is written as TOML.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Display) -> Self {
        self.0.insert(key.to_owned(), value.to_string());
        self
    }

    /// Small bounds, so that a test can reach eviction: `keep` outcomes per client and outcome, no retention, and a
    /// sweep every second.
    pub fn evicting(keep: u64) -> Self {
        Self::new()
            .with("transaction_meta_persist_count", keep)
            .with("gc_interval_seconds", 1)
            .with("gc_retention_seconds", 0)
    }

    /// The file's text.
    pub fn to_toml(&self) -> String {
        self.0.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
    }
}
