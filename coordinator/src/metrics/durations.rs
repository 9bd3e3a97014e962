//! How long calls took, by path and class of status. A call costs three additions; a library's histogram keeps every value
//! until somebody folds it.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

const NAME: &str = "ratified_http_request_seconds";
const HELP: &str =
    "From the head of a request to its answer, by path and class of status; what a caller asked to wait counts.";
/// Upper bounds in microseconds, and as they are written in seconds.
const BOUNDS: [(u64, &str); 12] = [
    (250, "0.00025"),
    (500, "0.0005"),
    (1_000, "0.001"),
    (2_500, "0.0025"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (25_000, "0.025"),
    (50_000, "0.05"),
    (100_000, "0.1"),
    (500_000, "0.5"),
    (2_500_000, "2.5"),
    (30_000_000, "30"),
];
const CLASSES: [&str; 3] = ["2xx", "4xx", "5xx"];

/// Counts of one path and class.
#[derive(Default)]
struct Cell {
    /// Of each bound alone; the last are those beyond all.
    within: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

/// The durations of the calls to one path.
#[derive(Default)]
pub(super) struct Durations([Cell; CLASSES.len()]);

impl Durations {
    pub(super) fn record(&self, status: u16, took: Duration) {
        let class = match status {
            ..400 => 0,
            400..500 => 1,
            500.. => 2,
        };
        let Some(cell) = self.0.get(class) else { return };
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS.iter().position(|(bound, _)| micros <= *bound).unwrap_or(BOUNDS.len());
        if let Some(count) = cell.within.get(at) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        cell.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Appends the rows of what there has been.
    fn render(&self, route: &str, text: &mut String) -> std::fmt::Result {
        for (cell, class) in self.0.iter().zip(CLASSES) {
            let counts: Vec<_> = cell.within.iter().map(|count| count.load(Ordering::Relaxed)).collect();
            let total: u64 = counts.iter().sum();
            if total == 0 {
                continue;
            }
            let labels = format!("route=\"{route}\",status=\"{class}\"");
            let mut below = 0;
            for (count, bound) in counts.iter().zip(BOUNDS.iter().map(|(_, text)| *text).chain(["+Inf"])) {
                below += count;
                writeln!(text, "{NAME}_bucket{{{labels},le=\"{bound}\"}} {below}")?;
            }
            let micros = cell.micros.load(Ordering::Relaxed);
            writeln!(text, "{NAME}_sum{{{labels}}} {}.{:06}", micros / 1_000_000, micros % 1_000_000)?;
            writeln!(text, "{NAME}_count{{{labels}}} {total}")?;
        }
        Ok(())
    }
}

/// Appends all of it as Prometheus text.
pub(super) fn render<'a>(
    routes: impl Iterator<Item = (&'a str, &'a Durations)>,
    text: &mut String,
) -> std::fmt::Result {
    let mut rows = String::new();
    for (route, durations) in routes {
        durations.render(route, &mut rows)?;
    }
    if rows.is_empty() {
        return Ok(());
    }
    write!(text, "# HELP {NAME} {HELP}\n# TYPE {NAME} histogram\n{rows}\n")
}
