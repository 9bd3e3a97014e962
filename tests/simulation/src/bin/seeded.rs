//! Seeds the defects of the state machine in a copy of the workspace, and runs Cargo there:
//!
//! ```text
//! cargo run -p ratified-simulation --bin seeded -- test -p ratified-simulation --test engine_defects
//! cargo run -p ratified-simulation --bin seeded -- run -p ratified-simulation --bin switchboard
//! ```

use std::{
    env,
    error::Error,
    path::{Path, PathBuf, absolute},
    process::{Command, ExitCode},
};

use ratified_simulation::{copy, defects};

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether Cargo succeeded.
fn run() -> Result<bool, Box<dyn Error>> {
    let root = absolute(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))?;
    let target = absolute(env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from))?;
    let copy = target.join("seeded");
    copy::make(&root, &copy, &defects::listed())?;
    // Dependencies are the workspace's own, built once for both; what is made of the copy stays apart.
    let build = env::var_os("CARGO_BUILD_BUILD_DIR").map_or(target, PathBuf::from);
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["--offline", "--locked"]).args(env::args_os().skip(1)).current_dir(&copy);
    cargo.env("CARGO_BUILD_BUILD_DIR", build).env("CARGO_TARGET_DIR", copy.join("target"));
    Ok(cargo.status()?.success())
}
