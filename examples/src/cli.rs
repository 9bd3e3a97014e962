//! What the examples say to their callers, and how they end.

use std::{
    fmt::Display,
    io::{self, Write},
    process::ExitCode,
};

use tracing_subscriber::EnvFilter;

/// Rows were looked at, and some are lost, doubled or wrong.
const EXIT_NOT_EXACT: u8 = 1;
/// Something could not be done; nothing is said about rows.
const EXIT_FAILED: u8 = 3;

/// Logs warnings and worse to stderr, or what `RUST_LOG` asks for.
pub fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
}

/// Prints a line. A reader that has seen enough, as `head` has, is no reason to fail.
pub fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Ends with what went wrong, if anything did.
pub fn exit<E: Display>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

/// Prints what a drill has found, and ends well only if it is exact.
pub fn verdict(report: &impl Display, is_exact: bool) -> ExitCode {
    say(&report.to_string());
    if is_exact { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NOT_EXACT) }
}
