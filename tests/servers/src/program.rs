//! Running a program as a user does.

use std::{
    fs::File,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::tally;

/// Longest run. Reached only by one that hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs it to its end, in this directory.
pub fn run(exe: &str, dir: &Path, args: &[&str]) -> Output {
    let (stdout, stderr) = (dir.join("stdout.log"), dir.join("stderr.log"));
    let mut child = Command::new(exe)
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(File::create(&stdout).unwrap())
        .stderr(File::create(&stderr).unwrap())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{exe} {args:?} hangs: {}", std::fs::read_to_string(&stderr).unwrap());
        }
        // Only how often is looked; nothing depends on it.
        thread::sleep(Duration::from_millis(20));
    };
    Output { status, stdout: std::fs::read(&stdout).unwrap(), stderr: std::fs::read(&stderr).unwrap() }
}

/// What it printed.
pub fn text(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    format!("{}\n{stderr}", String::from_utf8_lossy(&output.stdout))
}

/// The numbers in the line of a table that starts with this name.
pub fn numbers(text: &str, name: &str) -> Vec<u64> {
    let line = text.lines().find(|line| line.trim_start().starts_with(name));
    let rest = line.unwrap_or_else(|| panic!("no line {name:?} in\n{text}")).trim_start().strip_prefix(name).unwrap();
    rest.split_whitespace().map_while(|word| word.parse().ok()).collect()
}

/// So many kills of a drill, for the count of `scripts/test`.
pub fn note_kills(kills: usize) {
    (0..kills).for_each(|_| tally::fault("SIGKILL drill"));
}
