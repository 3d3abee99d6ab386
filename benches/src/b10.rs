//! B10, heartbeats: how many nodes a second are noted as heard, a thousand in a statement.
//!
//! The limit: the plainest update of the same rows. Targets: at least half of it, and at most 5 % of a core for 100,000
//! nodes that beat every 30 seconds.

use std::{io::Write, time::Instant};

use anyhow::{Result, ensure};
use schema::{generation::Epoch, id::NodeId};
use store::{sessions, testing::probes};

use crate::{
    Options,
    house::House,
    measure::{Turns, median, sizes},
};

const PER_STATEMENT: usize = 1_000;
/// Rows that one turn writes at least.
const ROWS: usize = 50_000;

/// Runs the bench; answers whether the machine was quiet enough.
pub(crate) fn run(options: &Options, out: &mut impl Write) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    sizes("B10 heartbeats", options, out, |count, out| runtime.block_on(size(options, count, out)))
}

async fn size(options: &Options, count: usize, out: &mut impl Write) -> Result<bool> {
    let house = House::with(count).await?;
    probes::open_all_sessions(&house.db).await?;
    let ids: Vec<NodeId> = house.machines.iter().map(|machine| machine.id).collect();
    let rounds = ROWS.div_ceil(count).max(1);
    let mut beats = Turns::default();
    for _ in 0..options.pairs.max(1) {
        let begin = Instant::now();
        for nodes in (0..rounds).flat_map(|_| ids.chunks(PER_STATEMENT)) {
            probes::raw_beat(&house.db, nodes).await?;
        }
        beats.probe.push(begin.elapsed().as_secs_f64());
        let begin = Instant::now();
        for nodes in (0..rounds).flat_map(|_| ids.chunks(PER_STATEMENT)) {
            let rows: Vec<(NodeId, Epoch)> = nodes.iter().map(|node| (*node, Epoch(1))).collect();
            ensure!(sessions::beat(&house.db, &rows).await?.len() == nodes.len(), "a node was not heard");
        }
        beats.product.push(begin.elapsed().as_secs_f64());
    }
    house.close().await;
    let rate = |seconds: &[f64]| (rounds * count) as f64 / median(seconds.iter().copied());
    writeln!(out, "\n{count} nodes")?;
    writeln!(
        out,
        "  beats    {:8.0} rows/s  (probe {:.0} rows/s, spread {:.2})",
        rate(&beats.product),
        rate(&beats.probe),
        beats.spread()
    )?;
    writeln!(out, "  ratio    {:8.2}     (target: at least 0.5)", 1.0 / beats.ratio())?;
    // As if one core did nothing else while a statement ran.
    let share = 100.0 * 100_000.0 / 30.0 / rate(&beats.product);
    writeln!(out, "  at most  {share:8.1} %  of a core for 100,000 nodes every 30 s (target: at most 5 %)")?;
    beats.verdict(out)
}
