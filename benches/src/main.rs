//! The benches of the design: each runs the product and a probe of the limit in turns, prints both and the ratio, and
//! voids itself when the probe was disturbed. `make bench` builds and runs them; `docs/PERFORMANCE.md` keeps the results.
//!
//! ```text
//! benches b11 [--nodes 1000,10000] [--pairs 5] [--yaml PERCENT]
//! benches verify [--nodes 1000] [--commits 10000] [--pairs 5]
//! benches b7|b8|b9|b10|b14 [--nodes 1000] [--pairs 5] [--rate PER_SECOND]
//! ```

mod b10;
mod b11;
mod b14;
mod b7;
mod b8;
mod b9;
mod fleet;
mod house;
mod measure;
mod repository;
mod serve;
mod swarm;
mod tokens;
mod verify;

use std::{
    env,
    io::{self, Write as _},
    process::ExitCode,
};

use anyhow::{Context as _, Result, bail};

/// What is asked for.
#[derive(Debug, Clone)]
struct Options {
    /// Sizes of the fleet.
    nodes: Vec<usize>,
    /// Turns of probe and product.
    pairs: usize,
    /// How many of a hundred machines are written in YAML.
    yaml: usize,
    /// Commands per second.
    rate: usize,
    /// Commits of a history.
    commits: usize,
}

fn options(mut words: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options { nodes: vec![1_000, 10_000], pairs: 5, yaml: 0, rate: 1_000, commits: 10_000 };
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--nodes" => {
                options.nodes =
                    value.split(',').map(str::parse).collect::<Result<_, _>>().context("--nodes 1000,10000")?;
            }
            "--pairs" => options.pairs = value.parse().context("--pairs 5")?,
            "--rate" => options.rate = value.parse().context("--rate 1000")?,
            "--commits" => options.commits = value.parse().context("--commits 10000")?,
            "--yaml" => options.yaml = value.parse().context("--yaml 20")?,
            _ => bail!("there is no option {word}"),
        }
    }
    Ok(options)
}

fn run() -> Result<bool> {
    let mut words = env::args().skip(1);
    let bench = words.next().unwrap_or_else(|| "b11".to_owned());
    let mut out = io::stdout().lock();
    match bench.as_str() {
        "b11" => b11::run(&options(words)?, &mut out),
        "b7" => b7::run(&options(words)?, &mut out),
        "b8" => b8::run(&options(words)?, &mut out),
        "b9" => b9::run(&options(words)?, &mut out),
        "b10" => b10::run(&options(words)?, &mut out),
        "b14" => b14::run(&options(words)?, &mut out),
        "verify" => verify::run(&options(words)?, &mut out),
        // A gateway, or the limit of one, in a process of its own: the others start it.
        "serve" => serve::run(words, &mut out).map(|()| true),
        // What a process of its own needs for one fleet: b11 starts it.
        "b11-memory" => b11::memory(&words.next().context("a repository")?, &mut out).map(|()| true),
        other => bail!("there is no bench {other:?}; there are: b7, b8, b9, b10, b11, b14, verify"),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        // Disturbed: neither good nor bad.
        Ok(false) => ExitCode::from(3),
        Err(error) => {
            let _unsaid = writeln!(io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}
