//! Randomness that can be repeated.
//!
//! The order of hash maps, the jitter of retries and the choice of `select!` come from the operating system's
//! `getrandom`; this package brings its own, seeded for each thread. What it is not: a source of secrets.

use std::{cell::Cell, io::Read};

/// A small generator, and all the randomness of a run.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// A generator of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.draw() % sides.max(1)
    }

    /// A number from `from` to below `to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.roll(to - from)
    }

    /// True once in so many.
    pub fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    /// One of them.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len() as u64) as usize]
    }
}

thread_local! {
    static SEEDED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// From here on this thread draws the randomness of this seed. Must come before anything else on the thread draws:
/// std keeps the keys of hash maps, and `rand` its generator, once per thread.
pub fn seed_thread(seed: u64) {
    SEEDED.set(Some(seed));
}

fn fill(buffer: &mut [u8]) {
    let Some(seed) = SEEDED.get() else {
        let mut urandom = std::fs::File::open("/dev/urandom").expect("the system's randomness");
        urandom.read_exact(buffer).expect("the system's randomness");
        return;
    };
    let mut dice = Dice(seed);
    buffer.chunks_mut(8).for_each(|chunk| {
        let bytes = dice.draw().to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    });
    SEEDED.set(Some(dice.0));
}

/// Stands in for the C library's: std and the `getrandom` crate find this one first.
///
/// # Safety
/// As of the C library's: `buffer` must be valid for writing `length` bytes.
#[allow(
    unsafe_code,
    reason = "the one symbol that all sources of randomness end in; there is no safe way to replace it"
)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    if length > 0 {
        // SAFETY: the caller vouches for `buffer` and `length`; any bytes are valid as u8 once they are written.
        let bytes = unsafe {
            std::ptr::write_bytes(buffer, 0, length);
            std::slice::from_raw_parts_mut(buffer, length)
        };
        fill(bytes);
    }
    length.cast_signed()
}

/// Brings the process-wide counter of tokio's task ids to a multiple of 64. A runtime that goes down drops its tasks
/// shard by shard, and the shard is the id modulo a small power of two: the order in which a crashed host's connections
/// close would depend on how many tasks earlier runs made.
pub fn align_task_ids() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    while runtime.block_on(async { tokio::spawn(async {}).id().to_string() }).parse::<u64>().expect("a number") % 64
        != 63
    {}
}
