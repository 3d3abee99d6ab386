//! B8, sessions: how fast nodes open sessions over mutual TLS, and what one takes in the gateway's memory.
//!
//! The limit: the same TLS and the same streams with nothing behind them. Targets: opens at least 0.7 of it, memory at most
//! 1.5 times it, no session lost.

use std::{io::Write, sync::atomic::Ordering, time::Duration};

use anyhow::Result;

use crate::{
    Options,
    house::{House, Kind, Served},
    measure::{Turns, median, sizes},
    swarm::Nodes,
};

/// How long sessions are held after they opened.
const HOLD: Duration = Duration::from_secs(3);

struct Turn {
    seconds: f64,
    kilobytes: f64,
    lost: usize,
}

/// Runs the bench; answers whether the machine was quiet enough.
pub(crate) fn run(options: &Options, out: &mut impl Write) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    sizes("B8 sessions", options, out, |count, out| runtime.block_on(size(options, count, out)))
}

async fn size(options: &Options, count: usize, out: &mut impl Write) -> Result<bool> {
    let house = House::with(count).await?;
    let (mut opens, mut memory, mut lost) = (Turns::default(), Turns::default(), 0);
    for _ in 0..options.pairs.max(1) {
        let probe = turn(&house, Kind::Probe).await?;
        let product = turn(&house, Kind::Product).await?;
        opens.probe.push(probe.seconds);
        opens.product.push(product.seconds);
        memory.probe.push(probe.kilobytes);
        memory.product.push(product.kilobytes);
        lost += product.lost;
    }
    house.close().await;
    let rate = |seconds: &[f64]| count as f64 / median(seconds.iter().copied());
    let each = |kilobytes: &[f64]| median(kilobytes.iter().copied()) / count as f64;
    writeln!(out, "\n{count} sessions")?;
    writeln!(
        out,
        "  opens    {:8.0} /s  (probe {:.0} /s, spread {:.2})",
        rate(&opens.product),
        rate(&opens.probe),
        opens.spread()
    )?;
    writeln!(out, "  ratio    {:8.2}     (target: at least 0.7)", 1.0 / opens.ratio())?;
    writeln!(out, "  memory   {:8.1} kB a session  (probe {:.1} kB)", each(&memory.product), each(&memory.probe))?;
    writeln!(out, "  ratio    {:8.2}     (target: at most 1.5)", memory.ratio())?;
    writeln!(out, "  lost     {lost:8}     (target: 0)")?;
    opens.verdict(out)
}

async fn turn(house: &House, kind: Kind) -> Result<Turn> {
    let served = Served::start(kind, house.dir())?;
    let before = served.resident();
    let (nodes, _heard) = Nodes::of(house);
    let begin = std::time::Instant::now();
    let open = nodes.open_all(&house.machines, &[served.address]).await?;
    let seconds = begin.elapsed().as_secs_f64();
    tokio::time::sleep(HOLD).await;
    let kilobytes = served.resident() - before;
    let lost = open.len() - nodes.alive.load(Ordering::Relaxed);
    served.kill()?;
    drop(open);
    Ok(Turn { seconds, kilobytes, lost })
}
