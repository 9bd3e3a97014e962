//! The errors of several members as one, each with its member's name.

use std::time::Duration;

use super::names::MemberName;
use crate::error::{Cause, Certainty, SinkError};

/// What went wrong in the members that were asked the same thing.
#[derive(Debug, Default)]
pub(super) struct Failures(Vec<(MemberName, SinkError)>);

impl Failures {
    /// Takes the error of a member out of its result.
    pub(super) fn note<T>(&mut self, member: &MemberName, result: Result<T, SinkError>) -> Option<T> {
        result.map_err(|error| self.0.push((member.clone(), error))).ok()
    }

    /// The members' errors before an outcome is decided: the gravest decides what the runtime may do. A determinate
    /// failure may be repeated, since members that succeeded are not asked again.
    pub(super) fn before_decision(self) -> Result<(), SinkError> {
        let is_rejected = self.0.iter().any(|(_, error)| matches!(error, SinkError::Rejected(_)));
        let is_determinate = self.0.iter().all(|(_, error)| certainty_of(error) == Some(Certainty::Determinate));
        match (self.0.is_empty(), is_rejected) {
            (true, _) => Ok(()),
            (false, true) => Err(SinkError::Rejected(self.cause())),
            (false, false) if is_determinate => Err(self.retry(Certainty::Determinate)),
            (false, false) => Err(self.retry(Certainty::Indeterminate)),
        }
    }

    /// The members' errors once an outcome is decided: as long as any of them may succeed, all are asked again; a refusal
    /// is told when it is all that is left.
    pub(super) fn after_decision(self) -> Result<(), SinkError> {
        if self.0.is_empty() {
            return Ok(());
        }
        if self.0.iter().all(|(_, error)| matches!(error, SinkError::Rejected(_))) {
            return Err(SinkError::Rejected(self.cause()));
        }
        for (member, error) in &self.0 {
            if let SinkError::Rejected(cause) = error {
                tracing::error!(%member, %cause, "a member refuses a decided outcome; the others are still at it");
            }
        }
        Err(self.retry(Certainty::Indeterminate))
    }

    fn retry(self, certainty: Certainty) -> SinkError {
        let after: Option<Duration> = self.0.iter().filter_map(|(_, error)| after_of(error)).max();
        SinkError::Retry { after, certainty, cause: self.cause() }
    }

    fn cause(&self) -> Cause {
        let told: Vec<_> = self.0.iter().map(|(member, error)| describe(member, error)).collect();
        Cause::new(told.join("; "))
    }
}

/// The result of a member, with its name in the error.
pub(super) fn named<T>(member: &MemberName, result: Result<T, SinkError>) -> Result<T, SinkError> {
    result.map_err(|error| match error {
        SinkError::Retry { after, certainty, .. } => {
            SinkError::Retry { after, certainty, cause: Cause::new(describe(member, &error)) }
        }
        SinkError::Rejected(_) => SinkError::Rejected(Cause::new(describe(member, &error))),
    })
}

fn certainty_of(error: &SinkError) -> Option<Certainty> {
    match error {
        SinkError::Retry { certainty, .. } => Some(*certainty),
        SinkError::Rejected(_) => None,
    }
}

fn after_of(error: &SinkError) -> Option<Duration> {
    match error {
        SinkError::Retry { after, .. } => *after,
        SinkError::Rejected(_) => None,
    }
}

fn describe(member: &MemberName, error: &SinkError) -> String {
    match error {
        SinkError::Retry { cause, .. } => format!("member {member} failed for now: {cause}"),
        SinkError::Rejected(cause) => format!("member {member} refused: {cause}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(errors: impl IntoIterator<Item = SinkError>) -> Failures {
        let mut failures = Failures::default();
        for (index, error) in errors.into_iter().enumerate() {
            assert_eq!(failures.note::<()>(&format!("m{index}").parse().unwrap(), Err(error)), None);
        }
        failures
    }

    fn busy(seconds: u64) -> SinkError {
        let certainty = Certainty::Determinate;
        SinkError::Retry { after: Some(Duration::from_secs(seconds)), certainty, cause: Cause::new("busy") }
    }

    fn told(result: Result<(), SinkError>) -> (bool, Option<Certainty>, Option<Duration>, String) {
        let error = result.unwrap_err();
        let is_rejected = matches!(error, SinkError::Rejected(_));
        (is_rejected, certainty_of(&error), after_of(&error), error.to_string())
    }

    #[test]
    fn before_the_decision_the_gravest_error_decides() {
        assert!(of([]).before_decision().is_ok());
        let (_, certainty, after, text) = told(of([busy(1), busy(3)]).before_decision());
        assert_eq!((certainty, after), (Some(Certainty::Determinate), Some(Duration::from_secs(3))));
        let expected =
            "the sink failed for now (Determinate): member m0 failed for now: busy; member m1 failed for now: busy";
        assert_eq!(text, expected);
        let (_, certainty, ..) = told(of([busy(1), SinkError::indeterminate("lost")]).before_decision());
        assert_eq!(certainty, Some(Certainty::Indeterminate));
        let (is_rejected, ..) = told(of([busy(1), SinkError::rejected("no")]).before_decision());
        assert!(is_rejected);
    }

    #[test]
    fn after_the_decision_a_refusal_waits_for_those_who_may_still_succeed() {
        assert!(of([]).after_decision().is_ok());
        let (is_rejected, certainty, after, text) = told(of([SinkError::rejected("lost"), busy(2)]).after_decision());
        assert!(!is_rejected);
        assert_eq!((certainty, after), (Some(Certainty::Indeterminate), Some(Duration::from_secs(2))));
        assert!(text.contains("member m0 refused: lost; member m1 failed for now: busy"), "{text}");
        let (is_rejected, .., text) = told(of([SinkError::rejected("lost")]).after_decision());
        assert!(is_rejected);
        assert_eq!(text, "the sink refused: member m0 refused: lost");
    }
}
