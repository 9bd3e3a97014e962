//! `cargo +nightly fuzz run log`; the same function is tried by `cargo test -p ratified-fuzz-targets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ratified_fuzz_targets::log(data));
