//! `ratifyd`, the transaction coordinator.

mod cli;

use std::process::ExitCode;

use clap::Parser;

// Many small answers are made by one thread and dropped by another, which this is better at than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run(cli::Cli::parse())
}
