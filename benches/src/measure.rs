//! Turns of a probe and of the product: medians, the ratio, and whether the machine was quiet enough to say anything.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::Options;

/// How much the slowest probe may differ from the fastest.
const MOST_SPREAD: f64 = 2.0;

/// What the turns took, in seconds.
#[derive(Debug, Default, Clone)]
pub(crate) struct Turns {
    pub(crate) probe: Vec<f64>,
    pub(crate) product: Vec<f64>,
}

impl Turns {
    /// The median of the ratios of each turn.
    pub(crate) fn ratio(&self) -> f64 {
        median(self.product.iter().zip(&self.probe).map(|(product, probe)| product / probe))
    }

    /// The slowest probe by the fastest.
    pub(crate) fn spread(&self) -> f64 {
        let most = self.probe.iter().copied().fold(0.0, f64::max);
        let least = self.probe.iter().copied().fold(f64::INFINITY, f64::min);
        most / least
    }

    /// Whether the probe was disturbed too much for the ratio to mean anything.
    fn void(&self) -> bool {
        self.spread() > MOST_SPREAD
    }

    /// Whether they mean anything; when they do not, that is said.
    pub(crate) fn verdict(&self, out: &mut impl Write) -> Result<bool> {
        if self.void() {
            writeln!(out, "  VOID: the probe spreads by more than {MOST_SPREAD}; run it again on a quiet machine")?;
        }
        Ok(!self.void())
    }
}

/// The middle of some numbers.
pub(crate) fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.into_iter().collect();
    numbers.sort_by(f64::total_cmp);
    match numbers.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => numbers[length / 2],
        length => f64::midpoint(numbers[length / 2 - 1], numbers[length / 2]),
    }
}

/// Of so many in a hundred at most this.
pub(crate) fn percentile(numbers: &[f64], percent: f64) -> f64 {
    let mut numbers = numbers.to_vec();
    numbers.sort_by(f64::total_cmp);
    let place = (numbers.len() as f64 * percent / 100.0).ceil() as usize;
    numbers.get(place.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// How this program was built: an unoptimised one says little about an optimised one.
const BUILD: &str = if cfg!(debug_assertions) { "debug build" } else { "release build" };

/// Says what is measured, and measures it for every size; answers whether the machine was quiet enough.
pub(crate) fn sizes<W: Write>(
    what: &str,
    options: &Options,
    out: &mut W,
    mut size: impl FnMut(usize, &mut W) -> Result<bool>,
) -> Result<bool> {
    writeln!(out, "{what}: {} turns each, load {}, {BUILD}", options.pairs, load())?;
    let mut quiet = true;
    for nodes in &options.nodes {
        quiet &= size(*nodes, out)?;
    }
    Ok(quiet)
}

/// What a figure has to be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

/// One figure of the product beside the limit's.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) what: &'static str,
    pub(crate) product: String,
    /// Empty when there is none.
    pub(crate) probe: String,
    /// What the target is about: the ratio of the two, or the figure itself.
    pub(crate) value: f64,
    pub(crate) target: Target,
}

impl Line {
    /// A figure without a limit beside it: at most so much.
    pub(crate) const fn alone(what: &'static str, product: String, value: f64, most: f64) -> Self {
        Self { what, product, probe: String::new(), value, target: Target::AtMost(most) }
    }
}

/// Prints a table of one size.
pub(crate) fn table(out: &mut impl Write, title: &str, lines: &[Line]) -> Result<()> {
    writeln!(out, "\n{title:<28} {:>14} {:>14} {:>8}   target", "product", "limit", "ratio")?;
    for Line { what, product, probe, value, target } in lines {
        let (sign, bound, met) = match target {
            Target::AtLeast(bound) => ('≥', bound, value >= bound),
            Target::AtMost(bound) => ('≤', bound, value <= bound),
        };
        let ratio = if probe.is_empty() { String::new() } else { format!("{value:.2}") };
        let met = if met { "met" } else { "NOT met" };
        writeln!(out, "  {what:<26} {product:>14} {probe:>14} {ratio:>8}   {sign} {bound:<5} {met}")?;
    }
    Ok(())
}

/// Fails when this process may not have so many files open, and says what to do.
pub(crate) fn enough_files(wanted: usize) -> Result<()> {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
    match line.split_whitespace().nth(3).and_then(|number| number.parse::<usize>().ok()) {
        Some(most) if most < wanted => {
            anyhow::bail!("{wanted} open files are needed and {most} are allowed: run `ulimit -n {wanted}` first")
        }
        _ => Ok(()),
    }
}

/// Does something and says how long it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    let done = work();
    (done, begin.elapsed())
}

/// A figure of a process's memory, in kB.
pub(crate) fn memory_of(process: u32, name: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(f64::NAN)
}

/// The processor time that a process has used, in seconds.
pub(crate) fn seconds_of(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // After the name, which may hold anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

/// The processes that this one started.
pub(crate) fn children_of(process: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parent = |process: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    processes.filter(|child| parent(child) == Some(process)).collect()
}

/// What else the machine was doing: its load over the last minute.
fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or("?").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbed_probe_voids_the_run() {
        let quiet = Turns { probe: vec![1.0, 1.1, 1.9], product: vec![2.0, 2.2, 3.8] };
        assert!(!quiet.void() && (quiet.ratio() - 2.0).abs() < 1e-9);
        assert!(Turns { probe: vec![1.0, 2.1], product: vec![1.0, 1.0] }.void());
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert!((median([4.0, 1.0, 3.0, 2.0]) - 2.5).abs() < 1e-9);
        assert!(median([]).is_nan());
    }
}
