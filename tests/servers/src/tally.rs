//! A ledger of the faults that a run of the suite really injected, so that the gate can see that it did.
//!
//! `TEST_TALLY` names a file; each fault appends one line to it, `fault <kind>`, and each seed `seed <test> <seed>`.
//! `scripts/test` sums them up. Without the variable nothing is written.

use std::{fmt::Display, fs::File, io::Write, path::Path};

/// One fault of this kind was injected, and it was seen to be.
///
/// # Panics
/// When the ledger cannot be written.
pub fn fault(kind: &str) {
    record(&format!("fault {kind}"));
}

/// Prints what the random choices of a test follow from, so that they can be repeated.
///
/// # Panics
/// When the ledger cannot be written.
pub fn seed(test: &str, seed: impl Display) {
    println!("{test}: seed {seed}");
    record(&format!("seed {test}: {seed}"));
}

fn record(line: &str) {
    if let Some(path) = std::env::var_os("TEST_TALLY") {
        append(Path::new(&path), line);
    }
}

/// Many test processes append at once: a line is one write, so none is torn.
fn append(path: &Path, line: &str) {
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_is_a_line_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tally");
        append(&path, "fault SIGKILL coordinator");
        append(&path, "fault SIGSTOP job");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "fault SIGKILL coordinator\nfault SIGSTOP job\n");
    }
}
