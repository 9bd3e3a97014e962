//! The command line.

use std::{
    env,
    ffi::OsString,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use ratified_coordinator::{
    Config, Coordinator, Handle, LogFormat, Sources, StartError, flush_log, log_to_stderr, say_last,
};
use tokio::signal::unix::{SignalKind, signal};

/// It did not start: the configuration or what is stored was refused, the directory or the address is in use. A command
/// line that cannot be read ends with 2, as everywhere.
const EXIT_START: u8 = 1;
/// The disk or the file system refused something, at the start or later, or its only store was given up: a supervisor
/// may start it again.
const EXIT_STORAGE: u8 = 3;
const UNKNOWN_VARIABLE: &str = "the environment variable names no key of the configuration";

/// The Ratified transaction coordinator.
#[derive(Debug, Parser)]
#[command(name = "ratifyd", version, about, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve until SIGTERM or SIGINT. Exit codes: 0 stopped, 1 refused to start, 2 wrong command line, 3 store failed.
    Serve {
        #[command(flatten)]
        settings: Settings,
        /// Write the bound address to this file once it is listened on.
        #[arg(long, value_name = "FILE")]
        port_file: Option<PathBuf>,
        /// How log lines are written to stderr; the environment variable RUST_LOG filters them (default: info).
        #[arg(long, value_enum, default_value_t = Format::Text)]
        log_format: Format,
    },
    /// Print the effective configuration, and what each key takes, as a TOML file.
    CheckConfig {
        #[command(flatten)]
        settings: Settings,
    },
}

#[derive(Debug, Args)]
struct Settings {
    /// A TOML file; the environment (RATIFIED_<KEY>) and flags win over it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where everything durable lies.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Listen where other machines reach, without authentication.
    #[arg(long)]
    insecure_allow_remote: bool,
    /// Set any key of the configuration; may be given more than once.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = parse_pair)]
    set: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

impl From<Format> for LogFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Text => Self::Text,
            Format::Json => Self::Json,
        }
    }
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

/// Carries the command out.
pub(crate) fn run(cli: Cli) -> ExitCode {
    match cli.command {
        Command::CheckConfig { settings } => match settings.resolve() {
            Ok((config, unknown)) => {
                for variable in unknown {
                    say_last(&format!("ratifyd: warning: {variable}: {UNKNOWN_VARIABLE}"));
                }
                print!("{}", config.describe());
                ExitCode::SUCCESS
            }
            Err(problem) => refuse(EXIT_START, &problem),
        },
        Command::Serve { settings, port_file, log_format } => match settings.resolve() {
            Ok((config, unknown)) => {
                if let Err(e) = log_to_stderr(log_format.into(), config.max_log_queue_bytes) {
                    return refuse(EXIT_START, &format!("the thread that writes the log cannot be started: {e}"));
                }
                for variable in unknown {
                    tracing::warn!(variable, "{UNKNOWN_VARIABLE}");
                }
                let code = serve(config, port_file);
                flush_log();
                code
            }
            Err(problem) => refuse(EXIT_START, &problem),
        },
    }
}

fn refuse(code: u8, problem: &str) -> ExitCode {
    say_last(&format!("ratifyd: {problem}"));
    ExitCode::from(code)
}

impl Settings {
    fn resolve(&self) -> Result<(Config, Vec<String>), String> {
        // No key has a name that this could turn another into.
        let named = |(name, value): (OsString, OsString)| (name.to_string_lossy().into_owned(), value);
        let mut sources = Sources { environment: env::vars_os().map(named).collect(), ..Sources::default() };
        if let Some(path) = &self.config {
            let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
            sources.file = Some((path.clone(), text));
        }
        sources.flags = self.set.iter().map(|(key, value)| (key.clone(), value.into())).collect();
        if let Some(dir) = &self.data_dir {
            sources.flags.push(("data_dir".to_owned(), dir.into()));
        }
        if let Some(listen) = &self.listen {
            sources.flags.push(("listen".to_owned(), listen.into()));
        }
        if self.insecure_allow_remote {
            sources.flags.push(("insecure_allow_remote".to_owned(), "true".into()));
        }
        let config = sources.resolve().map_err(|e| e.to_string())?;
        let unknown = sources.unknown_variables().into_iter().map(str::to_owned).collect();
        Ok((config, unknown))
    }
}

fn serve(config: Config, port_file: Option<PathBuf>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return refuse(EXIT_START, &format!("the runtime cannot be started: {e}")),
    };
    let code = runtime.block_on(serve_until_told(config, port_file.as_deref()));
    // A sync that never ends must not keep the process.
    runtime.shutdown_background();
    code
}

async fn serve_until_told(config: Config, port_file: Option<&Path>) -> ExitCode {
    let (mut terminate, mut interrupt) = match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(terminate), Ok(interrupt)) => (terminate, interrupt),
        (Err(e), _) | (_, Err(e)) => return refuse(EXIT_START, &format!("signals cannot be caught: {e}")),
    };
    let mut handle = match Coordinator::listen(config).await {
        Ok(handle) => handle,
        Err(e) => return refuse_start(&e),
    };
    let address = handle.local_addr();
    tracing::info!(%address, "listening");
    if let Some(path) = port_file
        && let Err(e) = write_atomically(path, address)
    {
        return refuse(EXIT_STORAGE, &format!("write {}: {e}", path.display()));
    }
    tokio::select! {
        loaded = handle.loaded() => if let Err(e) = loaded {
            return refuse_start(&e);
        },
        _ = terminate.recv() => return ExitCode::SUCCESS,
        _ = interrupt.recv() => return ExitCode::SUCCESS,
    }
    tracing::info!("ready");
    tokio::select! {
        _ = handle.wait() => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop(handle).await
}

fn refuse_start(error: &StartError) -> ExitCode {
    refuse(if error.is_of_the_disk() { EXIT_STORAGE } else { EXIT_START }, &error.to_string())
}

async fn stop(handle: Handle) -> ExitCode {
    match handle.shutdown().await {
        Ok(()) => {
            tracing::info!("stopped");
            ExitCode::SUCCESS
        }
        Err(failure) => refuse(EXIT_STORAGE, &failure.to_string()),
    }
}

fn write_atomically(path: &Path, address: SocketAddr) -> io::Result<()> {
    let unfinished = path.with_extension("unfinished");
    fs::write(&unfinished, format!("{address}\n"))?;
    fs::rename(&unfinished, path)
}
