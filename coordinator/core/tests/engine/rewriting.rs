//! Rewriting: a round puts everything that is there, whatever happens meanwhile, and tells nobody anything.

use std::collections::BTreeMap;

use ratified_core::{Effect, Input, Key, Limits, Request, Sweep, Write};
use ratified_protocol::Outcome::{Aborted, Committed};
use serde_json::json;

use crate::support::{Disk, Driver, abort, ack, begin, commit, epoch, forget, open, open_with, prepare, retire};

/// One page, and whether the round goes on.
fn page(d: &mut Driver) -> bool {
    let revision = d.engine.revision();
    let effects = d.step(Input::Sweep(Sweep::Rewrite));
    assert_eq!(d.engine.revision(), revision, "nothing has changed");
    match effects.as_slice() {
        [] => false,
        [Effect::SweepAgain(Sweep::Rewrite)] => true,
        other => panic!("{other:?}"),
    }
}

fn apply(disk: &mut Disk, writes: Vec<Write>) {
    for write in writes {
        match write {
            Write::Put(record) => drop(disk.insert(record.key(), record)),
            Write::Delete(key) => drop(disk.remove(&key)),
        }
    }
}

fn all(d: &Driver) -> Disk {
    d.engine.records().into_iter().map(|record| (record.key(), record)).collect()
}

/// Clients in all states, with records of all kinds.
fn filled() -> Driver {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p", "q"]})));
    d.call(prepare("c", 1, &json!({"epoch": 1, "payload": "AAAA"})));
    d.call(commit("c", 1, &epoch(1)));
    d.call(ack("c", 1, "p", Committed));
    d.call(begin("c", 2, &epoch(1)));
    d.call(prepare("c", 2, &json!({"epoch": 1, "payload": "AAAA"})));
    d.call(commit("c", 2, &epoch(1)));
    d.call(begin("c", 3, &epoch(1)));
    d.call(abort("c", 3, &epoch(1)));
    d.call(begin("c", 4, &epoch(1)));
    d.call(open("a", 1));
    d.call(open("b", 1));
    d.call(forget("b"));
    d.call(retire("z"));
    d.call(retire("y"));
    d
}

#[test]
fn a_round_puts_every_record_as_it_is() {
    let mut d = filled();
    let kinds: BTreeMap<_, usize> = all(&d).keys().fold(BTreeMap::new(), |mut kinds, key| {
        let kind = match key {
            Key::Client(_) => "client",
            Key::Transaction(..) => "transaction",
            Key::Ack(..) => "ack",
            Key::Payload(..) => "payload",
            Key::Outcome(..) => "outcome",
            Key::Participant(_) => "participant",
        };
        *kinds.entry(kind).or_default() += 1;
        kinds
    });
    let expected = [("ack", 1), ("client", 3), ("outcome", 2), ("participant", 2), ("payload", 2), ("transaction", 2)];
    assert_eq!(kinds, expected.into());
    for _ in 0..2 {
        assert!(!page(&mut d));
        let mut put = Disk::new();
        apply(&mut put, d.seal());
        d.sync();
        assert_eq!(put, all(&d));
    }
}

#[test]
fn a_page_is_bounded_and_a_round_goes_on_where_it_stopped() {
    let mut d = Driver::new(Limits::default());
    for n in 0..300 {
        d.call(open_with(&format!("client-{n:03}"), 1, true));
    }
    let mut pages = Vec::new();
    let mut put = Disk::new();
    loop {
        let goes_on = page(&mut d);
        let writes = d.seal();
        d.sync();
        pages.push(writes.len());
        apply(&mut put, writes);
        if !goes_on {
            break;
        }
    }
    assert_eq!(pages, [256, 44]);
    assert_eq!(put, all(&d));
}

/// Whatever is done between two pages, what was written since the round began is all there is.
#[test]
fn nothing_is_forgotten_or_comes_back_whatever_happens_in_the_midst_of_a_round() {
    let calls: Vec<fn() -> Request> = vec![
        || begin("client-100", 7, &json!({"epoch": 1, "participants": ["p"]})),
        || begin("client-290", 7, &epoch(1)),
        || commit("client-100", 7, &epoch(1)),
        || ack("client-100", 7, "p", Committed),
        || abort("client-290", 7, &epoch(1)),
        || ack("client-100", 7, "p", Aborted),
        || forget("client-280"),
        || forget("client-050"),
        || open_with("client-000a", 1, true),
        || open_with("client-299a", 1, true),
        || retire("p"),
    ];
    for at in [0, 1, 2, 3, 7] {
        let mut d = Driver::new(Limits::default());
        for n in 0..300 {
            d.call(open_with(&format!("client-{n:03}"), 1, true));
        }
        calls.iter().take(at).for_each(|call| drop(d.call(call())));
        let mut put = Disk::new();
        let mut rest = calls.iter().skip(at);
        loop {
            let goes_on = page(&mut d);
            // Part of the same batch, and of one of its own.
            if let Some(call) = rest.next() {
                d.submit(call());
            }
            apply(&mut put, d.seal());
            d.sync();
            if let (true, Some(call)) = (goes_on, rest.next()) {
                d.submit(call());
                apply(&mut put, d.seal());
                d.sync();
            }
            if !goes_on {
                break;
            }
        }
        assert_eq!(put, all(&d), "from call {at}");
    }
}

/// A payload is written once, with `prepare`: that it is the last commit's now is written nowhere near it.
#[test]
fn the_payload_of_a_commit_in_the_midst_of_a_round_is_not_forgotten() {
    for at in 0..12 {
        for ending in [1, 2, 3] {
            let mut d = Driver::opened_with(Limits { page: 1, ..Limits::default() });
            for n in 1..=3 {
                d.call(begin("c", n, &epoch(1)));
                d.call(prepare("c", n, &json!({"epoch": 1, "payload": "AAAA"})));
            }
            d.call(commit("c", if ending == 1 { 2 } else { 1 }, &epoch(1)));
            let mut put = Disk::new();
            for step in 0.. {
                if step == at {
                    d.submit(commit("c", ending, &epoch(1)));
                }
                let goes_on = page(&mut d);
                apply(&mut put, d.seal());
                d.sync();
                if !goes_on {
                    break;
                }
            }
            assert_eq!(put, all(&d), "{ending} at step {at}");
        }
    }
}

#[test]
fn a_store_that_is_short_of_room_begins_nothing_new_and_ends_what_there_is() {
    let mut d = filled();
    d.engine.set_short_of_room(true);
    let refused = |d: &mut Driver, request: Request| {
        let told = d.call(request);
        (told.status, told.body["code"].as_str().map(str::to_owned))
    };
    let overloaded = (429, Some("OVERLOADED".to_owned()));
    assert_eq!(refused(&mut d, begin("c", 9, &epoch(1))), overloaded);
    assert_eq!(refused(&mut d, open("new", 1)), overloaded);
    assert_eq!(refused(&mut d, open("b", 2)), overloaded, "a tombstone is made a client again");
    assert_eq!(d.call(begin("c", 4, &epoch(1))).status, 200, "a repetition");
    assert_eq!(d.call(open("c", 1)).status, 200);
    assert_eq!(d.call(commit("c", 4, &epoch(1))).status, 200);
    assert_eq!(d.call(ack("c", 1, "q", Committed)).status, 200);
    assert_eq!(d.call(open("c", 2)).status, 200, "an owner that takes over ends what is left");
    d.engine.set_short_of_room(false);
    assert_eq!(d.call(begin("c", 9, &epoch(2))).status, 201);
}
