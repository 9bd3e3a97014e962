//! What the checks found.

use std::fmt;

use thiserror::Error;

/// A behaviour that does not hold. The author of the sink must mend it before the runtime may rely on the sink.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{behaviour}: {seen}")]
#[non_exhaustive]
pub struct Failure {
    /// The name of the check.
    pub behaviour: &'static str,
    /// What was seen, and where what should have been seen.
    pub seen: String,
}

/// How a check ended that found no failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The behaviour holds.
    Held,
    /// The harness lacks what the check needs; nothing is known.
    Skipped,
}

/// What [`run_all`](super::run_all) found.
#[must_use = "a report that nobody reads checks nothing"]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The checks that held.
    pub held: Vec<&'static str>,
    /// The checks that could not be made.
    pub skipped: Vec<&'static str>,
    /// The checks that failed.
    pub failures: Vec<Failure>,
}

impl Report {
    pub(super) fn note(&mut self, behaviour: &'static str, found: Result<Verdict, Failure>) {
        match found {
            Ok(Verdict::Held) => self.held.push(behaviour),
            Ok(Verdict::Skipped) => self.skipped.push(behaviour),
            Err(failure) => self.failures.push(failure),
        }
    }

    /// Whether nothing failed.
    pub fn is_ok(&self) -> bool {
        self.failures.is_empty()
    }

    /// Whether this check failed.
    pub fn failed(&self, behaviour: &str) -> bool {
        self.failures.iter().any(|failure| failure.behaviour == behaviour)
    }

    /// Ends a test whose sink lacks a behaviour.
    ///
    /// # Panics
    /// If any check failed, with all of them in the message.
    pub fn assert(&self) {
        assert!(self.is_ok(), "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { held, skipped, failures } = self;
        write!(f, "{} held, {} skipped, {} failed", held.len(), skipped.len(), failures.len())?;
        skipped.iter().try_for_each(|behaviour| write!(f, "\n  skipped {behaviour}"))?;
        failures.iter().try_for_each(|failure| write!(f, "\n  failed {failure}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_tells_every_failure_and_what_was_seen() {
        let mut report = Report::default();
        report.note("a", Ok(Verdict::Held));
        report.note("b", Ok(Verdict::Skipped));
        assert!(report.is_ok());
        report.note("c", Err(Failure { behaviour: "c", seen: "[1], not []".to_owned() }));
        assert!(!report.is_ok() && report.failed("c") && !report.failed("a"));
        assert_eq!(report.to_string(), "1 held, 1 skipped, 1 failed\n  skipped b\n  failed c: [1], not []");
    }

    #[test]
    #[should_panic(expected = "failed c: seen")]
    fn assert_ends_the_test_of_a_sink_that_fails() {
        Report { failures: vec![Failure { behaviour: "c", seen: "seen".to_owned() }], ..Report::default() }.assert();
    }
}
