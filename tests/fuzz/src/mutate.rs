//! Mutations of valid inputs: most random bytes are refused at once, and try nothing.

/// Draws inputs from valid ones. Same seed, same inputs.
#[derive(Debug)]
pub struct Mutator {
    state: u64,
    seeds: Vec<Vec<u8>>,
}

/// Bytes at which something changes: ends of ranges, continuations of variable-length numbers, JSON's own.
const INTERESTING: [u8; 16] = *b"\0\x01\x02\x7f\x80\xff\xfe\"\\{}[]:,0";
/// Pieces of JSON that are almost right.
const PIECES: [&[u8]; 12] = [
    b"null",
    b"-1",
    b"1e999",
    b"18446744073709551616",
    b"\"\\ud800\"",
    b"\"\\u0000\"",
    b"{}",
    b"[[[[",
    b"\"epoch\":1,",
    b"\"x\":1,",
    b"true",
    b"0.5",
];

impl Mutator {
    /// Mutations of these inputs.
    pub fn new(seed: u64, seeds: Vec<Vec<u8>>) -> Self {
        Self { state: seed ^ 0x5851_f42d_4c95_7f2d, seeds }
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % sides.max(1) as u64) as usize
    }

    /// The next input: a valid one, changed a little.
    pub fn draw(&mut self) -> Vec<u8> {
        let pick = self.roll(self.seeds.len());
        let mut input = self.seeds[pick].clone();
        for _ in 0..self.roll(4) {
            self.change(&mut input);
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.roll(input.len() + 1);
        let end = (at + 1 + self.roll(9)).min(input.len());
        match self.roll(8) {
            0 if at < input.len() => input[at] ^= 1 << self.roll(8),
            1 if at < input.len() => input[at] = INTERESTING[self.roll(INTERESTING.len())],
            2 => drop(input.drain(at.min(end)..end)),
            3 => {
                let copied = input[at.min(end)..end].to_vec();
                input.splice(at..at, copied);
            }
            4 => input.truncate(at),
            5 => {
                let piece = PIECES[self.roll(PIECES.len())];
                input.splice(at..at, piece.iter().copied());
            }
            6 => {
                let other = self.roll(self.seeds.len());
                let from = self.roll(self.seeds[other].len() + 1);
                input.truncate(at);
                input.extend_from_slice(&self.seeds[other][from..]);
            }
            _ => {
                let byte = self.roll(256) as u8;
                input.insert(at, byte);
            }
        }
    }
}
