//! A bounded run of what `fuzz/` runs without an end.
#![allow(clippy::expect_used, reason = "a failure is the test's answer")]

use ratified_fuzz_targets::{Mutator, TARGETS};

/// Inputs for each decoder; `RATIFIED_FUZZ_INPUTS` asks for more, `RATIFIED_FUZZ_SEED` for others.
const INPUTS: u64 = 20_000;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn no_decoder_panics_or_takes_what_it_would_not_write() {
    let (seed, inputs) = (number("RATIFIED_FUZZ_SEED", 1), number("RATIFIED_FUZZ_INPUTS", INPUTS));
    for (name, target, seeds) in TARGETS {
        println!("{name}: {inputs} inputs, RATIFIED_FUZZ_SEED={seed}");
        seeds().iter().for_each(|valid| target(valid));
        let mut mutator = Mutator::new(seed, seeds());
        for number in 0..inputs {
            let input = mutator.draw();
            let run = std::panic::catch_unwind(|| target(&input));
            assert!(run.is_ok(), "{name}: input {number}: {}", input.escape_ascii());
        }
    }
}

#[test]
fn the_valid_inputs_are_taken() {
    let bytes = ratified_fuzz_targets::store_seeds().remove(0);
    let (length, rest) = bytes.split_first().expect("a length");
    let (key, value) = rest.split_at(usize::from(*length));
    assert!(ratified_coordinator::store::codec::decode(key, value).is_ok());
    let mut newer = value.to_vec();
    newer[0] = 3;
    let refused = ratified_coordinator::store::codec::decode(key, &newer).expect_err("a version of the future");
    assert!(refused.to_string().contains("unknown version 3"), "{refused}");
    for file in ratified_fuzz_targets::pending_seeds() {
        let client = "job.0".parse().expect("a name");
        assert!(ratified::pending::inspect::read(&file, &client).is_ok());
    }
}
