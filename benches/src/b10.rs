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
    measure::{Line, Target, Turns, median, sizes, table},
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
    // As a gateway has it, for both.
    let db = house.db.planning_once(1);
    probes::open_all_sessions(&db).await?;
    let ids: Vec<NodeId> = house.machines.iter().map(|machine| machine.id).collect();
    let rounds = ROWS.div_ceil(count).max(1);
    let mut beats = Turns::default();
    for _ in 0..options.pairs.max(1) {
        let begin = Instant::now();
        for nodes in (0..rounds).flat_map(|_| ids.chunks(PER_STATEMENT)) {
            probes::raw_beat(&db, nodes).await?;
        }
        beats.probe.push(begin.elapsed().as_secs_f64());
        let begin = Instant::now();
        for nodes in (0..rounds).flat_map(|_| ids.chunks(PER_STATEMENT)) {
            let rows: Vec<(NodeId, Epoch)> = nodes.iter().map(|node| (*node, Epoch(1))).collect();
            ensure!(sessions::beat(&db, &rows).await?.len() == nodes.len(), "a node was not heard");
        }
        beats.product.push(begin.elapsed().as_secs_f64());
    }
    db.close().await;
    house.close().await;
    let rate = |seconds: &[f64]| (rounds * count) as f64 / median(seconds.iter().copied());
    // As if one core did nothing else while a statement ran.
    let share = 100.0 * 100_000.0 / 30.0 / rate(&beats.product);
    let lines = [
        Line {
            what: "heartbeats written",
            product: format!("{:.0} /s", rate(&beats.product)),
            probe: format!("{:.0} /s", rate(&beats.probe)),
            value: 1.0 / beats.ratio(),
            target: Target::AtLeast(0.5),
        },
        Line::alone("of a core, 100,000 in 30 s", format!("{share:.1} %"), share, 5.0),
    ];
    table(out, &format!("{count} nodes"), &lines)?;
    writeln!(out, "  (the limit spreads by {:.2})", beats.spread())?;
    beats.verdict(out)
}
