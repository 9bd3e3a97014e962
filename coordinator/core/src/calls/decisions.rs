//! decisions: what a participant still has to apply, pulled by it.

use ratified_protocol::{Code, Decision, DecisionsAnswer, MAX_ANSWER_PAYLOAD_BYTES, ParticipantName, Payload, Problem};

use crate::{
    effect::{Answer, Ticket},
    step::Step,
    waiting::WaitFor,
};

/// Most decisions of one answer; the cursor leads on.
const MAX_DECISIONS: usize = 1000;

impl Step<'_> {
    /// Decided and not acknowledged, oldest first; waits when there is nothing newer than the cursor.
    pub(crate) fn decisions(
        &mut self,
        ticket: Ticket,
        participant: ParticipantName,
        cursor: Option<&str>,
        wait_ms: u64,
    ) {
        let Some(after) = self.parse_cursor(cursor) else {
            let problem = Problem::new(Code::InvalidArgument, "after: must be the cursor of an earlier answer");
            self.reply_now(ticket, Answer::Problem(Box::new(problem)));
            return;
        };
        let nothing = self.engine.participants.decisions(&participant, after).next().is_none();
        if nothing && wait_ms > 0 && self.may_park() {
            self.park(ticket, wait_ms, WaitFor::Decision { participant, after });
            return;
        }
        let answer = self.pending_decisions(&participant, after);
        self.reply_now(ticket, Answer::Decisions(answer));
    }

    /// The decision number in a cursor. One of an earlier load counts as absent: numbers begin anew with each load.
    fn parse_cursor(&self, cursor: Option<&str>) -> Option<u64> {
        let Some(cursor) = cursor else { return Some(0) };
        let (loads, number) = cursor.split_once('.')?;
        let (loads, number): (u64, u64) = (loads.parse().ok()?, number.parse().ok()?);
        Some(if loads == self.engine.loads { number } else { 0 })
    }

    pub(crate) fn pending_decisions(&self, participant: &ParticipantName, after: u64) -> DecisionsAnswer {
        let mut decisions = Vec::new();
        let mut last = after;
        let mut room = MAX_ANSWER_PAYLOAD_BYTES;
        for (number, (client, id)) in self.engine.participants.decisions(participant, after).take(MAX_DECISIONS) {
            let Some(txn) = self.txn(client, *id) else { continue };
            let Some(outcome) = txn.record.state.outcome() else { continue };
            let bytes = txn.payload.as_ref().map_or(0, bytes::Bytes::len);
            let Some(left) = room.checked_sub(bytes) else { break };
            room = left;
            last = number;
            let payload = txn.payload.clone().map(Payload::new);
            decisions.push(Decision::new(client.clone(), *id, outcome, payload));
        }
        DecisionsAnswer::new(decisions, format!("{}.{last}", self.engine.loads))
    }
}
