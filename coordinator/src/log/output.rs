//! Where log lines of the process go.

use std::{
    io::{self, Write},
    panic,
    sync::OnceLock,
    time::Duration,
};

use tracing_subscriber::{EnvFilter, field::MakeExt, fmt::format::debug_fn};

use super::{
    escape::{self, Field, LogFormat},
    lines::Lines,
};

/// Of the storage engine only what went wrong: it is the only one to know why its background work failed.
const LOG_FILTER: &str = "info";
/// How long the last lines may take to be written when the process ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

static STDERR: OnceLock<Lines> = OnceLock::new();

/// Sends all that this process logs to stderr, by a thread of its own, and panics with it; `RUST_LOG` filters. At most
/// this many bytes wait for a stderr that takes no more; lines beyond are dropped and counted. Only the first call counts.
///
/// # Errors
/// The thread cannot be started.
pub fn log_to_stderr(format: LogFormat, max_queued_bytes: usize) -> io::Result<()> {
    let lines = Lines::start(io::stderr(), max_queued_bytes, format)?;
    if STDERR.set(lines.clone()).is_err() {
        return Ok(());
    }
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(LOG_FILTER));
    let make = move || lines.clone();
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(make).with_ansi(false);
    let fields = debug_fn(|line, field, value| match field.name() {
        "message" => write!(line, "{value:?}"),
        name => write!(line, "{name}={}", Field(value)),
    });
    match format {
        LogFormat::Text => subscriber.fmt_fields(fields.delimited(" ")).init(),
        LogFormat::Json => subscriber.json().init(),
    }
    panic::set_hook(Box::new(|panicked| tracing::error!(panic = %panicked, "a thread panicked")));
    Ok(())
}

/// Says why the process ends: behind the log if there is one, and without waiting long for who reads it.
pub fn say_last(words: &str) {
    let words = last_words(words);
    match STDERR.get() {
        Some(lines) => lines.push_last(&words),
        // A full disk may take no line either; that must not change how the process ends.
        None => drop(io::stderr().write_all(words.as_bytes())),
    }
}

/// A file may have a name of several lines: those that go on are indented, so that none looks like a line of its own.
fn last_words(words: &str) -> String {
    let lines: Vec<_> = words.lines().map(|line| escape::line(line, LogFormat::Text)).collect();
    format!("{}\n", lines.join("\n  "))
}

/// Waits, not for long, until what was logged is written. To be called when the process ends.
pub fn flush_log() {
    if let Some(lines) = STDERR.get() {
        lines.flush(FLUSH_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_steer_no_terminal_and_go_on_indented() {
        let said = last_words("ratifyd: /data\u{1b}[2J\u{202e}\nratifyd: all is well");
        assert_eq!(said, "ratifyd: /data\\u{1b}[2J\\u{202e}\n  ratifyd: all is well\n");
    }
}
