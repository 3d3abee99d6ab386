//! B14, the idle part: sessions that do nothing but beat, for a minute. What the gateway and PostgreSQL do then, and what is
//! written.
//!
//! Targets: at most 5 % of a core, and nothing written but heartbeats in batches.

use std::{io::Write, time::Duration};

use anyhow::Result;
use gateway::Timing;
use proto::agent::v1::{self as pb, node_frame::Frame as Up};
use store::{Db, testing::probes};

use crate::{
    Options,
    house::{House, Kind, Served},
    measure::{Line, enough_files, sizes, table},
    swarm::{Nodes, Open},
};

const BEATS: u64 = 2;
/// Longer than between two batches of heartbeats, and until the statistics say what was written.
const LOOK: Duration = Duration::from_secs(7);

/// Runs the bench.
pub(crate) fn run(options: &Options, out: &mut impl Write) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    sizes("B14 idle sessions, one minute", options, out, |count, out| runtime.block_on(size(count, out)))
}

async fn size(count: usize, out: &mut impl Write) -> Result<bool> {
    enough_files(count + 1_000)?;
    let house = House::with(count).await?;
    let served = Served::start(Kind::Product, house.dir())?;
    let (nodes, mut heard) = Nodes::of(&house);
    let open = nodes.open_all(&house.machines, &[served.address]).await?;
    quiet(&house.db).await?;
    let every = Timing::default().heartbeat.to_std();

    let (gateway, database) = (served.seconds(), house.database_seconds());
    let written = probes::written(&house.db).await?;
    for sequence in 0..BEATS {
        beat(&open, sequence, every).await?;
        while heard.try_recv().is_ok() {}
    }
    let after = probes::written(&house.db).await?;
    let share = |seconds: f64| 100.0 * seconds / (every.as_secs_f64() * BEATS as f64);
    let (gateway, database) = (share(served.seconds() - gateway), share(house.database_seconds() - database));
    served.kill()?;
    house.close().await;

    let (heartbeats, others) = (after.heartbeats - written.heartbeats, after.others - written.others);
    let lines = [
        Line::alone("of a core, both", format!("{:.1} %", gateway + database), gateway + database, 5.0),
        Line::alone(
            "rows written, heartbeats",
            heartbeats.to_string(),
            heartbeats as f64,
            (BEATS as usize * count) as f64,
        ),
        Line::alone("rows written, others", others.to_string(), others as f64, 0.0),
    ];
    table(out, &format!("{count} sessions"), &lines)?;
    writeln!(
        out,
        "  (gateway {gateway:.1} %, PostgreSQL {database:.1} %; {} transactions, {} kB of its log)",
        after.transactions - written.transactions,
        (after.log_bytes - written.log_bytes) / 1_000
    )?;
    Ok(true)
}

/// Waits until nothing is written any more that belongs to opening.
async fn quiet(db: &Db) -> Result<()> {
    let mut before = probes::written(db).await?;
    loop {
        tokio::time::sleep(LOOK).await;
        let after = probes::written(db).await?;
        if (after.heartbeats, after.others) == (before.heartbeats, before.others) {
            return Ok(());
        }
        before = after;
    }
}

/// Every node says that it is there, spread over the time between two beats, as the gateway asks it to.
async fn beat(open: &[Open], sequence: u64, every: Duration) -> Result<()> {
    let begin = tokio::time::Instant::now();
    for (place, session) in open.iter().enumerate() {
        tokio::time::sleep_until(begin + every.mul_f64(place as f64 / open.len() as f64)).await;
        session.up.send(pb::NodeFrame { frame: Some(Up::Heartbeat(pb::Heartbeat { sequence })) }).await?;
    }
    tokio::time::sleep_until(begin + every).await;
    Ok(())
}
