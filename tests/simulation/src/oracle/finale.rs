//! What holds once faults have stopped and everything had its time.

use ratified_coordinator::Periods;
use ratified_core::{Key, Record, Uptime};
use ratified_protocol::{Outcome, ParticipantName, TxnState};

use super::{Oracle, Verdict, ensure};

impl Oracle {
    /// Whether every transaction has ended that can.
    pub fn has_converged(&self, stuck: Option<&ParticipantName>) -> bool {
        self.everything_ends(stuck).is_ok()
    }

    /// Liveness and bounds.
    ///
    /// # Errors
    /// What did not converge, or is kept too long.
    pub fn finale(&self, now: Uptime, periods: &Periods, stuck: Option<&ParticipantName>) -> Verdict {
        self.everything_ends(stuck)?;
        // Sweeps run first one period after the load.
        self.bounds_hold(now, self.loaded_at, periods)
    }

    /// Expired and ending transactions terminate without a client; a stuck participant delays only its own.
    fn everything_ends(&self, stuck: Option<&ParticipantName>) -> Verdict {
        for (client, id, header) in self.live() {
            let waits_for = header.participants.iter().filter(|p| !p.retired).map(|p| &p.name).find(|name| {
                let acked = self.memory.contains_key(&Key::Ack(client.clone(), id, (*name).clone()));
                Some(*name) == stuck && !acked
            });
            let held = header.state.outcome().is_some() && waits_for.is_some();
            ensure(held, || format!("every transaction ends: {client}/{id} is {} {header:?}", header.state))?;
        }
        Ok(())
    }

    /// At most N outcomes per client and outcome, but for the young; none older than the persist time.
    fn bounds_hold(&self, now: Uptime, loaded_at: Uptime, periods: &Periods) -> Verdict {
        let slack = 100;
        let limits = self.limits;
        let clients: Vec<_> = self
            .memory
            .values()
            .filter_map(|record| match record {
                Record::Client(name, client) => Some((name, client)),
                _ => None,
            })
            .collect();
        for (name, record) in clients {
            for outcome in Outcome::ALL {
                let mut kept: Vec<_> = self.outcomes(name).filter(|(_, o)| o.outcome == outcome).collect();
                kept.sort_by_key(|(_, o)| std::cmp::Reverse(o.termination));
                // It is surplus from the end of the N-th newer one on.
                let surplus = kept.iter().enumerate().skip(limits.persist_count).find(|(i, (_, o))| {
                    let crowded = kept.get(i - limits.persist_count).map_or(o.ended, |(_, newer)| newer.ended);
                    let since = crowded.max(o.ended.plus_millis(limits.gc_retention_ms)).max(loaded_at);
                    now.millis_since(since) > periods.gc_ms + slack
                });
                ensure(surplus.is_none(), || format!("at most N outcomes are kept: {name} {surplus:?}"))?;
                let never = if outcome == Outcome::Committed { limits.min_committed_per_client } else { 0 };
                // It may expire from the end of that newer one on which leaves it out of the newest.
                let expired = kept.iter().enumerate().skip(never).find(|(i, (_, o))| {
                    let left_out = kept.get(i - never).map_or(o.ended, |(_, newer)| newer.ended);
                    let since = left_out.max(o.ended.plus_millis(limits.persist_time_ms)).max(loaded_at);
                    now.millis_since(since) > periods.expiry_ms + slack
                });
                ensure(expired.is_none(), || format!("outcomes expire: {name} {expired:?}"))?;
            }
            let busy = self.live().any(|(client, ..)| client == name) || self.outcomes(name).next().is_some();
            let idle = !busy && record.last_committed.is_none() && !record.forgotten;
            let active = self.active.get(name).copied().unwrap_or_default();
            let overdue = limits.client_retention_ms.is_some_and(|retention| {
                let since = active.plus_millis(retention).max(loaded_at);
                now.millis_since(since) > periods.gc_ms + slack
            });
            ensure(!(idle && overdue), || format!("idle clients shrink: {name} {record:?} at {now:?}"))?;
        }
        Ok(())
    }

    /// Transactions that are OPEN or PREPARED in memory.
    pub fn undecided(&self) -> usize {
        self.live().filter(|(_, _, h)| matches!(h.state, TxnState::Open | TxnState::Prepared)).count()
    }
}
