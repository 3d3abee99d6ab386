//! B8, sessions: how fast nodes open sessions over mutual TLS, and what one takes in the gateway's memory.
//!
//! The limit: the same TLS and the same streams with nothing behind them. Targets: opens at least 0.7 of it, memory at most
//! 1.5 times it, no session lost.

use std::{io::Write, sync::atomic::Ordering, time::Duration};

use anyhow::Result;

use crate::{
    Options,
    house::{House, Kind, Served},
    measure::{Line, Target, Turns, enough_files, median, sizes, table},
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
    enough_files(count + 1_000)?;
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
    let rate = |seconds: &[f64]| format!("{:.0} /s", count as f64 / median(seconds.iter().copied()));
    let each = |kilobytes: &[f64]| median(kilobytes.iter().copied()) / count as f64;
    let (product, probe) = (each(&memory.product), each(&memory.probe));
    let lines = [
        Line {
            what: "opens",
            product: rate(&opens.product),
            probe: rate(&opens.probe),
            value: 1.0 / opens.ratio(),
            target: Target::AtLeast(0.7),
        },
        Line {
            what: "memory of a session",
            product: format!("{product:.1} kB"),
            probe: format!("{probe:.1} kB"),
            value: memory.ratio(),
            target: Target::AtMost(1.5),
        },
        Line::alone("memory of a session", format!("{product:.1} kB"), product, 64.0),
        Line::alone("sessions lost in 3 s", lost.to_string(), lost as f64, 0.0),
    ];
    table(out, &format!("{count} sessions"), &lines)?;
    writeln!(out, "  (the limit of opens spreads by {:.2})", opens.spread())?;
    opens.verdict(out)
}

async fn turn(house: &House, kind: Kind) -> Result<Turn> {
    let served = Served::start(kind, house.dir())?;
    let (nodes, _heard) = Nodes::of(house);
    // What a process does once, when it begins, is not measured.
    drop(Nodes::of(house).0.open_all(&house.machines[..1], &[served.address]).await?);
    let before = served.resident();
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
