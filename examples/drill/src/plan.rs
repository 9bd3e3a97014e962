//! What is killed when: drawn from a seed, the same on every machine and in every version.

use std::time::Duration;

use super::point::KillPoint;

/// A small generator (SplitMix64), here because the plan of a seed must never change.
#[derive(Debug, Clone)]
pub struct Draw(u64);

impl Draw {
    /// The draws of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`, which must not be 0 to be of use.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }

    /// An index into a list of this length, 0 for an empty one.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// The same things in another order.
    pub fn shuffled<T>(&mut self, mut rest: Vec<T>) -> Vec<T> {
        let mut shuffled = Vec::with_capacity(rest.len());
        while !rest.is_empty() {
            shuffled.push(rest.swap_remove(self.index(rest.len())));
        }
        shuffled
    }
}

/// When to kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// When a point is passed for the `nth` time from now on.
    At {
        /// Which point.
        point: KillPoint,
        /// At least 1.
        nth: u32,
    },
    /// After this long, wherever the job is then.
    After(Duration),
}

/// Whom to kill. In a pass in which the coordinator is no process of its own the job dies instead of it, and the
/// coordinator with the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Victim {
    /// The job.
    Job,
    /// The coordinator, while the job waits.
    Coordinator,
    /// Both at once.
    Both,
    /// A server that the job writes to, by its place in the subject's list, while the job works.
    Server(usize),
}

/// One kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    /// When.
    pub moment: Moment,
    /// Whom.
    pub victim: Victim,
}

/// What a plan is drawn from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choices<'a> {
    pub(crate) points: &'a [KillPoint],
    /// Each as often as it stands there.
    pub(crate) victims: &'a [Victim],
    /// The latest random moment.
    pub(crate) longest: Duration,
}

/// The kills of a seed. Every round of them holds each point once and four random moments, in any order.
pub(crate) fn plan(seed: u64, kills: usize, choices: Choices<'_>) -> Vec<Order> {
    let mut draw = Draw::new(seed);
    let longest_ms = u64::try_from(choices.longest.as_millis()).unwrap_or(u64::MAX);
    let mut orders = Vec::with_capacity(kills.saturating_add(choices.points.len() + 4));
    while orders.len() < kills {
        let mut moments: Vec<_> = choices.points.iter().copied().map(Some).collect();
        moments.extend([None; 4]);
        for point in draw.shuffled(moments) {
            let moment = match point {
                Some(point) => Moment::At { point, nth: 1 + u32::try_from(draw.below(3)).unwrap_or(0) },
                None => Moment::After(Duration::from_millis(draw.below(longest_ms))),
            };
            let drawn = draw.index(choices.victims.len());
            let victim = choices.victims.get(drawn).copied().unwrap_or(Victim::Job);
            orders.push(Order { moment, victim });
        }
    }
    orders.truncate(kills);
    orders
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTS: [KillPoint; 6] = [
        KillPoint::BEGUN,
        KillPoint::PRE_COMMITTED,
        KillPoint::DECIDED,
        KillPoint::new("half", "half of it"),
        KillPoint::APPLIED,
        KillPoint::ACKED,
    ];
    const VICTIMS: [Victim; 5] = [Victim::Coordinator, Victim::Both, Victim::Job, Victim::Job, Victim::Server(0)];

    fn plan(seed: u64, kills: usize) -> Vec<Order> {
        super::plan(seed, kills, Choices { points: &POINTS, victims: &VICTIMS, longest: Duration::from_millis(150) })
    }

    #[test]
    fn a_seed_gives_one_plan() {
        assert_eq!(plan(7, 50), plan(7, 50));
        assert_ne!(plan(7, 50), plan(8, 50));
        assert_eq!(plan(7, 50)[..12], plan(7, 12)[..]);
        assert_eq!(Draw::new(0).below(u64::MAX), 0xe220_a839_7b1d_cdaf, "as published for SplitMix64");
    }

    #[test]
    fn every_ten_kills_hold_each_of_six_points_and_four_random_moments() {
        for seed in 0..20 {
            for ten in plan(seed, 50).chunks(10) {
                let count = |point| {
                    ten.iter().filter(|o| matches!(o.moment, Moment::At { point: p, .. } if p == point)).count()
                };
                assert_eq!(POINTS.map(count), [1; 6]);
                assert_eq!(ten.iter().filter(|o| matches!(o.moment, Moment::After(_))).count(), 4);
            }
        }
    }

    #[test]
    fn everybody_is_a_victim() {
        for victim in VICTIMS {
            assert!(plan(1, 50).iter().any(|order| order.victim == victim));
        }
    }
}
