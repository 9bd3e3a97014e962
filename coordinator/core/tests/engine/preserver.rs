//! The preserver through the protocol: what is kept, for how long, and what the watermark says about the rest.

use ratified_core::{Key, Limits, Sweep, Write};
use ratified_protocol::Outcome::{Aborted, Committed};
use serde_json::{Value, json};

use crate::support::{
    Driver, abort, ack, begin, client, commit, epoch, forget, get, id, id_text, lookup, prepare, preserver, retire,
};

const RETENTION_MS: u64 = 100;
const PERSIST_MS: u64 = 1000;

/// N = 2, at most 4 per outcome, and everything expires.
fn small() -> Limits {
    Limits {
        persist_count: 2,
        persist_time_ms: PERSIST_MS,
        gc_retention_ms: RETENTION_MS,
        max_outcomes_per_client: 4,
        min_committed_per_client: 0,
        ..Limits::default()
    }
}

fn end(d: &mut Driver, n: u64, how: fn(&str, u64, &Value) -> ratified_core::Request) {
    d.call(begin("c", n, &epoch(1)));
    assert_eq!(d.call(how("c", n, &epoch(1))).status, 200);
}

fn kept(d: &mut Driver) -> Vec<u64> {
    d.read(preserver("c")).ids("outcomes")
}

fn watermark(d: &mut Driver) -> Value {
    d.read(preserver("c")).member("evictedThrough")
}

#[test]
fn the_list_tells_outcomes_newest_first_the_watermark_and_the_last_commit() {
    let mut d = Driver::opened_with(small());
    end(&mut d, 2, commit);
    d.pass(5);
    end(&mut d, 1, abort);
    d.call(begin("c", 3, &json!({"epoch": 1, "participants": ["p"]})));
    d.call(prepare("c", 3, &json!({"epoch": 1, "checkpointId": 8, "payload": "eA=="})));
    d.call(commit("c", 3, &json!({})));
    d.call(begin("c", 4, &epoch(1)));
    assert_eq!(
        d.read(preserver("c")).body,
        json!({
            "clientName": "c", "persistCount": 2,
            "outcomes": [
                {"txnId": id_text(3), "outcome": "COMMITTED", "endReason": "CLIENT", "checkpointId": 8,
                 "keptForMs": 100},
                {"txnId": id_text(1), "outcome": "ABORTED", "endReason": "CLIENT", "checkpointId": null,
                 "endTime": "1970-01-01T00:00:00.005Z", "keptForMs": 100},
                {"txnId": id_text(2), "outcome": "COMMITTED", "endReason": "CLIENT", "checkpointId": null,
                 "endTime": "1970-01-01T00:00:00.000Z", "keptForMs": 95}
            ],
            "evictedThrough": null,
            "lastCommitted": {"txnId": id_text(3), "checkpointId": 8, "payload": "eA==",
                              "endTime": "1970-01-01T00:00:00.005Z", "endReason": "CLIENT"}
        })
    );
    assert_eq!(d.read(preserver("x")).brief(), "404 CLIENT_NOT_FOUND");
}

#[test]
fn a_lookup_answers_by_what_is_known() {
    let mut d = Driver::opened_with(small());
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p"]})));
    assert_eq!(d.read(lookup("c", 1)).brief(), "409 INVALID_TXN_STATE: OPEN");
    d.call(prepare("c", 1, &json!({"epoch": 1, "checkpointId": 8})));
    assert_eq!(d.read(lookup("c", 1)).brief(), "409 INVALID_TXN_STATE: PREPARED");
    d.call(commit("c", 1, &json!({})));
    let told = |outcome: &str, end: Value, kept: Value| {
        let mut body = json!({"txnId": id_text(1), "outcome": outcome, "endReason": "CLIENT", "checkpointId": 8,
                              "endTime": end, "keptForMs": kept});
        if end.is_null() {
            body.as_object_mut().unwrap().remove("endTime");
        }
        body
    };
    assert_eq!(d.read(lookup("c", 1)).body, told("COMMITTED", Value::Null, json!(100)), "COMMITTING counts");
    d.pass(3);
    d.call(ack("c", 1, "p", Committed));
    d.pass(4);
    let end = json!("1970-01-01T00:00:00.003Z");
    assert_eq!(d.read(lookup("c", 1)).body, told("COMMITTED", end.clone(), json!(96)));
    d.pass(PERSIST_MS);
    d.sweep(Sweep::Expiry);
    assert_eq!(d.read(lookup("c", 1)).body, told("COMMITTED", end, Value::Null), "still the last commit");
    assert_eq!(d.read(lookup("c", 2)).brief(), "404 TXN_NOT_FOUND");
    assert_eq!(d.read(lookup("x", 1)).brief(), "404 CLIENT_NOT_FOUND");
    d.call(forget("c"));
    assert_eq!(d.read(lookup("c", 1)).brief(), "410 OUTCOME_EXPIRED");
}

#[test]
fn an_aborting_transaction_is_looked_up_as_aborted_and_a_passed_deadline_is_met() {
    let mut d = Driver::opened_with(small());
    d.call(begin("c", 1, &json!({"epoch": 1, "timeoutMs": 10, "participants": ["p"]})));
    d.pass(10);
    let told = d.call(lookup("c", 1));
    assert_eq!((told.member("outcome"), told.member("endReason")), (json!("ABORTED"), json!("TIMEOUT")));
}

#[test]
fn count_keeps_the_newest_n_of_each_outcome() {
    let mut d = Driver::opened_with(small());
    for n in [1, 2, 3] {
        end(&mut d, n, commit);
        end(&mut d, n + 10, abort);
    }
    d.pass(RETENTION_MS - 1);
    d.sweep(Sweep::Gc);
    assert_eq!(kept(&mut d), [13, 3, 12, 2, 11, 1], "too young");
    d.pass(1);
    d.sweep(Sweep::Gc);
    assert_eq!(kept(&mut d), [13, 3, 12, 2]);
    assert_eq!(watermark(&mut d), id_text(11));
    assert_eq!(d.read(get("c", 1)).brief(), "410 OUTCOME_EXPIRED");
    assert_eq!(d.read(get("c", 4)).brief(), "410 OUTCOME_EXPIRED", "below the watermark nobody can tell");
    assert_eq!(d.read(get("c", 14)).brief(), "404 TXN_NOT_FOUND");
    assert_eq!(d.engine.stats().evicted_by_count, 2);
    d.restart();
    assert_eq!(kept(&mut d), [13, 3, 12, 2]);
    assert_eq!(watermark(&mut d), id_text(11));
}

#[test]
fn aborts_never_push_out_a_commit() {
    let mut d = Driver::opened_with(small());
    end(&mut d, 1, commit);
    end(&mut d, 2, commit);
    for n in 3..=20 {
        end(&mut d, n, abort);
    }
    d.pass(RETENTION_MS);
    d.sweep(Sweep::Gc);
    assert_eq!(kept(&mut d), [20, 19, 2, 1]);
    assert_eq!(d.read(commit("c", 1, &json!({}))).brief(), "200 COMMITTED CLIENT replayed preserved");
}

#[test]
fn eviction_follows_the_order_of_termination_not_of_ids() {
    let mut d = Driver::opened_with(small());
    for n in [1, 2, 3] {
        d.call(begin("c", n, &json!({"epoch": 1, "participants": ["p"]})));
        d.call(abort("c", n, &epoch(1)));
    }
    for n in [3, 1, 2] {
        d.call(ack("c", n, "p", Aborted));
    }
    d.pass(RETENTION_MS);
    d.sweep(Sweep::Gc);
    assert_eq!(kept(&mut d), [2, 1]);
    assert_eq!(watermark(&mut d), id_text(3));
    // Preserved outcomes below the watermark are still told.
    assert_eq!(d.read(get("c", 1)).brief(), "200 ABORTED CLIENT preserved");
}

#[test]
fn the_limit_per_client_evicts_in_the_batch_that_ends_one_more() {
    let mut d = Driver::opened_with(small());
    for n in 1..=4 {
        end(&mut d, n, abort);
    }
    assert_eq!(kept(&mut d), [4, 3, 2, 1], "N is not enforced before the retention is over");
    d.call(begin("c", 5, &epoch(1)));
    d.submit(abort("c", 5, &epoch(1)));
    let writes = d.seal();
    d.sync();
    assert!(writes.contains(&Write::Delete(Key::Outcome(client("c"), id(1)))), "{writes:?}");
    let has_watermark = |write: &Write| match write {
        Write::Put(ratified_core::Record::Client(_, record)) => record.evicted_through == Some(id(1)),
        _ => false,
    };
    assert!(writes.iter().any(has_watermark), "raised in the same batch: {writes:?}");
    assert_eq!(kept(&mut d), [5, 4, 3, 2]);
    assert_eq!((d.engine.stats().evicted_by_limit, d.engine.stats().evicted_by_count), (1, 0));
    // Per outcome: commits have room of their own.
    end(&mut d, 6, commit);
    assert_eq!(kept(&mut d), [6, 5, 4, 3, 2]);
}

#[test]
fn a_limit_below_n_is_n() {
    let mut d = Driver::opened_with(Limits { max_outcomes_per_client: 1, ..small() });
    for n in 1..=3 {
        end(&mut d, n, abort);
    }
    assert_eq!(kept(&mut d), [3, 2]);
}

#[test]
fn outcomes_expire_after_the_persist_time() {
    let mut d = Driver::opened_with(small());
    end(&mut d, 1, abort);
    d.pass(1);
    end(&mut d, 2, abort);
    d.pass(PERSIST_MS - 2);
    d.sweep(Sweep::Expiry);
    assert_eq!(kept(&mut d), [2, 1]);
    d.pass(1);
    d.sweep(Sweep::Expiry);
    assert_eq!((kept(&mut d), watermark(&mut d)), (vec![2], json!(id_text(1))));
    assert_eq!(d.read(abort("c", 1, &epoch(1))).brief(), "410 OUTCOME_EXPIRED");
    d.pass(1);
    d.sweep(Sweep::Expiry);
    assert_eq!((kept(&mut d), watermark(&mut d)), (vec![], json!(id_text(2))));
    assert_eq!(d.engine.stats().expired, 2);
    assert_eq!(d.synced.len(), 1, "the records are deleted, so that no restart reloads the dead");
}

#[test]
fn downtime_does_not_age_outcomes() {
    let mut d = Driver::opened_with(small());
    end(&mut d, 1, abort);
    d.pass(PERSIST_MS - 1);
    d.call(begin("c", 2, &epoch(1)));
    d.restart();
    d.sweep(Sweep::Expiry);
    assert_eq!(kept(&mut d), [1]);
}

#[test]
fn what_is_told_to_be_kept_is_kept_whatever_comes() {
    let mut d = Driver::opened_with(Limits { max_outcomes_per_client: 1000, ..small() });
    end(&mut d, 1, commit);
    d.pass(99);
    assert_eq!(d.read(lookup("c", 1)).member("keptForMs"), 1);
    for n in 2..=9 {
        end(&mut d, n, commit);
    }
    d.sweep(Sweep::Gc);
    assert!(kept(&mut d).contains(&1));
    d.pass(1);
    assert_eq!(d.read(lookup("c", 1)).member("keptForMs"), 0, "N newer ones are there");
    d.sweep(Sweep::Gc);
    assert!(!kept(&mut d).contains(&1));
    let mut d = Driver::opened_with(Limits { gc_retention_ms: PERSIST_MS * 2, ..small() });
    end(&mut d, 1, abort);
    d.pass(1);
    assert_eq!(d.read(lookup("c", 1)).member("keptForMs"), 999, "age ends it first");
}

#[test]
fn the_newest_committed_outcomes_never_expire_since_a_checkpoint_may_list_them() {
    let mut d = Driver::opened();
    let limits = Limits::default();
    for n in 1..=9 {
        end(&mut d, n, commit);
        end(&mut d, n + 10, abort);
    }
    d.pass(limits.persist_time_ms * 10);
    d.sweep(Sweep::Expiry);
    assert_eq!(kept(&mut d), [9, 8, 7, 6, 5, 4, 3, 2], "the newest 8, and no abort");
    assert_eq!(d.read(commit("c", 2, &json!({}))).brief(), "200 COMMITTED CLIENT replayed preserved");
    d.restart();
    end(&mut d, 20, commit);
    d.sweep(Sweep::Expiry);
    assert_eq!(kept(&mut d), [20, 9, 8, 7, 6, 5, 4, 3], "the ninth is as old as ever");
}

#[test]
fn how_many_committed_outcomes_never_expire_is_a_limit() {
    for (min_committed_per_client, left) in [(0, vec![]), (1, vec![3]), (2, vec![3, 2])] {
        let mut d = Driver::opened_with(Limits { min_committed_per_client, ..small() });
        for n in 1..=3 {
            end(&mut d, n, commit);
        }
        d.pass(PERSIST_MS);
        d.sweep(Sweep::Expiry);
        assert_eq!(kept(&mut d), left, "{min_committed_per_client}");
    }
}

#[test]
fn the_last_commit_outlives_expiry_and_its_trace_ends_with_the_next_one() {
    let mut d = Driver::opened_with(small());
    end(&mut d, 1, commit);
    d.pass(PERSIST_MS);
    d.sweep(Sweep::Expiry);
    assert_eq!((kept(&mut d), watermark(&mut d)), (vec![], Value::Null), "the last commit is still a trace");
    assert_eq!(d.read(commit("c", 1, &json!({}))).brief(), "200 COMMITTED CLIENT replayed");
    end(&mut d, 2, commit);
    assert_eq!((kept(&mut d), watermark(&mut d)), (vec![2], json!(id_text(1))));
    assert_eq!(d.read(commit("c", 1, &json!({}))).brief(), "410 OUTCOME_EXPIRED");
}

#[test]
fn a_preserved_commit_keeps_its_trace_when_the_last_commit_moves_on() {
    let mut d = Driver::opened_with(small());
    end(&mut d, 1, commit);
    end(&mut d, 2, commit);
    assert_eq!((kept(&mut d), watermark(&mut d)), (vec![2, 1], Value::Null));
}

#[test]
fn forget_raises_the_watermark_to_the_newest_id() {
    let mut d = Driver::opened_with(small());
    end(&mut d, 7, abort);
    end(&mut d, 3, commit);
    d.call(forget("c"));
    assert_eq!((kept(&mut d), watermark(&mut d)), (vec![], json!(id_text(7))));
}

#[test]
fn a_count_of_zero_is_honoured() {
    let mut d = Driver::opened_with(Limits { persist_count: 0, ..small() });
    end(&mut d, 1, abort);
    end(&mut d, 2, commit);
    assert_eq!(kept(&mut d), [2, 1], "the retention holds");
    d.pass(RETENTION_MS);
    d.sweep(Sweep::Gc);
    assert_eq!((kept(&mut d), watermark(&mut d)), (vec![], json!(id_text(1))));
    assert_eq!(d.read(abort("c", 1, &epoch(1))).brief(), "410 OUTCOME_EXPIRED");
    assert_eq!(d.read(commit("c", 2, &json!({}))).brief(), "200 COMMITTED CLIENT replayed");
}

#[test]
fn an_ending_outcome_is_exempt_from_count_and_expiry_and_its_age_begins_at_its_end() {
    let mut d = Driver::opened_with(small());
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p"]})));
    d.call(abort("c", 1, &epoch(1)));
    for n in 2..=9 {
        end(&mut d, n, abort);
    }
    d.pass(PERSIST_MS * 2);
    d.sweep(Sweep::Gc);
    d.sweep(Sweep::Expiry);
    assert_eq!(kept(&mut d), [1]);
    assert_eq!(d.read(get("c", 1)).brief(), "200 ABORTING CLIENT");
    d.call(ack("c", 1, "p", Aborted));
    d.pass(PERSIST_MS - 1);
    d.sweep(Sweep::Expiry);
    assert_eq!(kept(&mut d), [1]);
    d.pass(1);
    d.sweep(Sweep::Expiry);
    assert!(kept(&mut d).is_empty());
    assert_eq!(watermark(&mut d), id_text(9), "it never falls");
}

#[test]
fn two_appends_are_one_flush_and_the_next_flush_writes_nothing() {
    let mut d = Driver::opened_with(small());
    d.call(begin("c", 1, &epoch(1)));
    d.call(begin("c", 2, &epoch(1)));
    d.submit(commit("c", 1, &epoch(1)));
    d.submit(abort("c", 2, &epoch(1)));
    let outcomes = |writes: &[Write]| {
        let is_outcome = |w: &&Write| matches!(w, Write::Put(ratified_core::Record::Outcome(..)));
        writes.iter().filter(is_outcome).count()
    };
    let writes = d.seal();
    assert_eq!(outcomes(&writes), 2);
    assert_eq!((d.engine.stats().preserver_appends, d.engine.stats().preserver_flush_writes), (2, 1));
    assert_eq!(d.seal(), []);
    assert_eq!(d.engine.stats().preserver_flush_writes, 1);
    d.sync();
}

#[test]
fn a_flush_holds_only_what_is_acknowledged() {
    let mut d = Driver::opened_with(small());
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p"]})));
    d.call(begin("c", 2, &epoch(1)));
    d.call(commit("c", 1, &epoch(1)));
    d.call(commit("c", 2, &epoch(1)));
    let has = |d: &Driver, key: Key| d.synced.contains_key(&key);
    assert!(!has(&d, Key::Outcome(client("c"), id(1))), "its participant still has to acknowledge");
    assert!(has(&d, Key::Transaction(client("c"), id(1))));
    assert!(has(&d, Key::Outcome(client("c"), id(2))));
    assert!(!has(&d, Key::Transaction(client("c"), id(2))), "the header goes in the batch of the flush");
    d.call(retire("p"));
    assert!(has(&d, Key::Outcome(client("c"), id(1))));
}

#[test]
fn an_outcome_that_ends_and_is_dropped_in_one_batch_leaves_only_the_watermark() {
    let mut d = Driver::opened_with(Limits { persist_count: 1, max_outcomes_per_client: 1, ..small() });
    for n in 1..=3 {
        d.submit(begin("c", n, &epoch(1)));
        d.submit(abort("c", n, &epoch(1)));
    }
    let writes = d.seal();
    d.sync();
    assert_eq!(writes.len(), 2, "the client and the newest outcome: {writes:?}");
    assert_eq!((kept(&mut d), watermark(&mut d)), (vec![3], json!(id_text(2))));
}
