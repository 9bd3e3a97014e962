//! Where values come from, and what is said about one that is refused.

use std::{ffi::OsString, fmt, path::PathBuf};

use thiserror::Error;
use toml::Table;

use super::{
    Config,
    keys::{KEYS, Key},
};

/// Environment variables that set a key start so; the rest is the key in capitals.
const ENV_PREFIX: &str = "RATIFIED_";

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    File(PathBuf),
    Environment(String),
    Flag,
    Combination,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}: ", path.display()),
            Self::Environment(variable) => write!(f, "environment variable {variable}: "),
            Self::Flag => f.write_str("flag: "),
            Self::Combination => Ok(()),
        }
    }
}

/// Why a configuration is refused: where, which key, and what it takes. The caller must mend it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{origin}{key}: {problem}")]
pub struct ConfigError {
    origin: Origin,
    key: String,
    problem: String,
}

impl ConfigError {
    fn new(origin: Origin, key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { origin, key: key.into(), problem: problem.into() }
    }

    pub(super) fn combination(key: &str, problem: String) -> Self {
        Self::new(Origin::Combination, key, problem)
    }

    /// The key that is refused.
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// The sources of a configuration; a flag wins over the environment, which wins over the file.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// A TOML file: its path and its text.
    pub file: Option<(PathBuf, String)>,
    /// The environment. Variables that start otherwise than `RATIFIED_` are not looked at, and neither are those that
    /// name no key: other programs share it.
    pub environment: Vec<(String, OsString)>,
    /// Flags: key and value.
    pub flags: Vec<(String, OsString)>,
}

impl Sources {
    /// The effective configuration.
    ///
    /// # Errors
    /// An unknown key, or a value it does not take; the caller must mend it.
    pub fn resolve(&self) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        if let Some((path, text)) = &self.file {
            read_file(&mut config, path, text)?;
        }
        for (variable, value) in &self.environment {
            let name = variable.strip_prefix(ENV_PREFIX).map(str::to_ascii_lowercase);
            if let Some(key) = name.as_deref().and_then(Key::find) {
                let origin = Origin::Environment(variable.clone());
                key.set_text(&mut config, value).map_err(|problem| ConfigError::new(origin, key.name, problem))?;
            }
        }
        for (name, value) in &self.flags {
            let key = Key::find(name).ok_or_else(|| unknown(Origin::Flag, name))?;
            key.set_text(&mut config, value).map_err(|problem| ConfigError::new(Origin::Flag, key.name, problem))?;
        }
        config.check()?;
        Ok(config)
    }

    /// Variables that look as if they were meant for the coordinator but name no key; worth a warning.
    pub fn unknown_variables(&self) -> Vec<&str> {
        let unknown = |(variable, _): &&(String, OsString)| {
            let name = variable.strip_prefix(ENV_PREFIX).map(str::to_ascii_lowercase);
            name.is_some_and(|n| Key::find(&n).is_none())
        };
        self.environment.iter().filter(unknown).map(|(variable, _)| variable.as_str()).collect()
    }
}

fn read_file(config: &mut Config, path: &std::path::Path, text: &str) -> Result<(), ConfigError> {
    let origin = || Origin::File(path.to_owned());
    let table: Table = text
        .parse()
        .map_err(|e: toml::de::Error| ConfigError::new(origin(), "TOML", e.to_string().trim_end().to_owned()))?;
    for (name, value) in &table {
        let key = Key::find(name).ok_or_else(|| unknown(origin(), name))?;
        key.set(config, value).map_err(|problem| ConfigError::new(origin(), key.name, problem))?;
    }
    Ok(())
}

fn unknown(origin: Origin, name: &str) -> ConfigError {
    let known: Vec<_> = KEYS.iter().map(|key| key.name).collect();
    ConfigError::new(origin, name, format!("is not a key; the keys are {}", known.join(", ")))
}

#[cfg(test)]
#[path = "sources_tests.rs"]
mod tests;
