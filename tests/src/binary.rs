//! Finds the programs under test next to the running test, and builds them when they are missing or stale.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::SystemTime,
};

/// The `ratifyd` of this workspace and profile. `RATIFYD` names another one.
///
/// # Panics
/// When it can neither be found nor built.
pub fn ratifyd() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| env::var_os("RATIFYD").map_or_else(find_or_build, PathBuf::from))
}

fn find_or_build() -> PathBuf {
    let test = env::current_exe().expect("a running test has a path");
    // target/<profile>/deps/<test>, or target/<profile>/<binary>
    let mut profile = test.parent().expect("an executable lies in a directory");
    if profile.ends_with("deps") {
        profile = profile.parent().expect("deps lies in the profile's directory");
    }
    let binary = profile.join("ratifyd");
    if !is_fresh(&binary) {
        build(profile);
    }
    assert!(binary.is_file(), "{} was built but is not there", binary.display());
    binary
}

/// Whether the binary is newer than every source cargo says it was made of.
fn is_fresh(binary: &Path) -> bool {
    let modified = |path: &Path| path.metadata().and_then(|m| m.modified()).ok();
    let Some(built) = modified(binary) else { return false };
    let Ok(sources) = std::fs::read_to_string(binary.with_extension("d")) else { return false };
    let Some((_, sources)) = sources.split_once(": ") else { return false };
    sources.split_whitespace().all(|source| modified(Path::new(source)).is_some_and(|m: SystemTime| m <= built))
}

fn build(profile: &Path) {
    let target = profile.parent().expect("a profile lies in the target directory");
    let name = profile.file_name().and_then(|n| n.to_str()).unwrap_or("debug");
    let name = if name == "debug" { "dev" } else { name };
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "-p", "ratified-coordinator", "--bin", "ratifyd", "--profile", name])
        .arg("--target-dir")
        .arg(target)
        .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
        .status()
        .expect("cargo can be run");
    assert!(status.success(), "ratifyd cannot be built: {status}");
}
