//! B9, a reconnect storm: one of two gateways is killed, and its nodes go to the other one after a back-off of their own.
//!
//! The limit: the same with nothing behind the streams. Target: at most 1.5 times it, and nobody stays away.

use std::{io::Write, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use tokio::task::JoinSet;

use crate::{
    Options,
    house::{House, Kind, Machine, Served},
    measure::{Turns, median, sizes},
    swarm::{Nodes, Open},
};

/// Nodes come back within this time, each at its own moment.
const BACK_OFF_MILLIS: u64 = 1_000;
const AGAIN: Duration = Duration::from_millis(200);

/// Runs the bench; answers whether the machine was quiet enough.
pub(crate) fn run(options: &Options, out: &mut impl Write) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    sizes("B9 reconnect storm", options, out, |count, out| runtime.block_on(size(options, count, out)))
}

async fn size(options: &Options, count: usize, out: &mut impl Write) -> Result<bool> {
    let house = House::with(count).await?;
    let mut back = Turns::default();
    for _ in 0..options.pairs.max(1) {
        back.probe.push(turn(&house, Kind::Probe).await?);
        back.product.push(turn(&house, Kind::Product).await?);
    }
    house.close().await;
    let middle = |seconds: &[f64]| median(seconds.iter().copied());
    writeln!(out, "\n{count} sessions, half of them lose their gateway")?;
    writeln!(
        out,
        "  99 % back {:7.2} s  (probe {:.2} s, spread {:.2}; a back-off of up to {BACK_OFF_MILLIS} ms in both)",
        middle(&back.product),
        middle(&back.probe),
        back.spread()
    )?;
    writeln!(out, "  ratio    {:8.2}     (target: at most 1.5)", back.ratio())?;
    back.verdict(out)
}

/// Seconds until 99 of 100 nodes of the killed gateway have a session again; all of them must in the end.
async fn turn(house: &House, kind: Kind) -> Result<f64> {
    let (dying, other) = (Served::start(kind, house.dir())?, Served::start(kind, house.dir())?);
    let (nodes, _heard) = Nodes::of(house);
    let half = house.machines.len() / 2;
    let staying = nodes.open_all(&house.machines[half..], &[other.address]).await?;
    let mut moving: Vec<(Arc<Machine>, Open)> = Vec::new();
    for machine in &house.machines[..half] {
        moving.push((Arc::clone(machine), nodes.open(Arc::clone(machine), dying.address).await?));
    }
    let begin = std::time::Instant::now();
    dying.kill()?;
    let mut coming = JoinSet::new();
    for (place, (machine, mut open)) in moving.into_iter().enumerate() {
        let (nodes, gateway) = (nodes.clone(), other.address);
        // Spread as a random back-off is, and the same in every turn.
        let back_off = Duration::from_millis(place as u64 * 7_919 % BACK_OFF_MILLIS);
        coming.spawn(async move {
            open.ended().await;
            tokio::time::sleep(back_off).await;
            loop {
                match nodes.open(Arc::clone(&machine), gateway).await {
                    Ok(open) => return (begin.elapsed().as_secs_f64(), open),
                    Err(_) => tokio::time::sleep(AGAIN).await,
                }
            }
        });
    }
    let back = tokio::time::timeout(Duration::from_secs(120), coming.join_all()).await.context("nodes stayed away")?;
    let mut seconds: Vec<f64> = back.iter().map(|(seconds, _)| *seconds).collect();
    seconds.sort_by(f64::total_cmp);
    other.kill()?;
    drop((staying, back));
    Ok(seconds.get(seconds.len() * 99 / 100).copied().unwrap_or(f64::NAN))
}
