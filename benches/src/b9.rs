//! B9, a reconnect storm: one of two gateways is killed with commands in flight, and its nodes go to the other one after a
//! back-off of their own.
//!
//! The limit: 1.5 times what as many raw opens take in the same run, and the back-off. Targets: no more than that, nobody stays
//! away, and of the commands none is lost, sent twice in a session, or left to the session before. Beside it the same storm with
//! nothing behind the streams, in which the back-off runs while others open already.

use std::{
    collections::HashMap,
    io::Write,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use schema::id::CommandId;
use store::{commands::Signed, testing::probes};
use tokio::{sync::mpsc::UnboundedReceiver, task::JoinSet, time::timeout};

use crate::{
    Options,
    house::{House, Kind, Served},
    measure::{Line, Target, Turns, enough_files, median, sizes, table},
    swarm::{Heard, Nodes},
};

/// Nodes come back within this time, each at its own moment.
const BACK_OFF_MILLIS: u64 = 1_000;
const AGAIN: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(120);
/// How long nothing more has to come for all to have come.
const QUIET: Duration = Duration::from_secs(2);

/// Runs the bench; answers whether the machine was quiet enough.
pub(crate) fn run(options: &Options, out: &mut impl Write) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    sizes("B9 reconnect storm", options, out, |count, out| runtime.block_on(size(options, count, out)))
}

/// What went wrong with commands.
#[derive(Debug, Default)]
struct Wrong {
    lost: usize,
    doubled: usize,
    stale: usize,
}

async fn size(options: &Options, count: usize, out: &mut impl Write) -> Result<bool> {
    enough_files(count + 1_000)?;
    let house = House::with(count).await?;
    let (mut back, mut wrong) = (Turns::default(), Wrong::default());
    let mut raw = Vec::new();
    for _ in 0..options.pairs.max(1) {
        let (probe, product) =
            (turn(&house, Kind::Probe, &mut wrong).await?, turn(&house, Kind::Product, &mut wrong).await?);
        back.probe.push(1.5 * probe.opens + BACK_OFF_MILLIS as f64 / 1e3);
        back.product.push(product.back);
        raw.push(probe.back);
    }
    house.close().await;
    let middle = |seconds: &[f64]| format!("{:.2} s", median(seconds.iter().copied()));
    let none = |what, wrong: usize| Line::alone(what, wrong.to_string(), wrong as f64, 0.0);
    let lines = [
        Line {
            what: "99 of 100 are back within",
            product: middle(&back.product),
            probe: middle(&back.probe),
            value: back.ratio(),
            target: Target::AtMost(1.0),
        },
        none("commands lost", wrong.lost),
        none("commands doubled", wrong.doubled),
        none("commands of a session before", wrong.stale),
    ];
    table(out, &format!("{count} sessions, half move"), &lines)?;
    let beside = median(back.product.iter().zip(&raw).map(|(product, raw)| product / raw));
    writeln!(
        out,
        "  (each after up to {BACK_OFF_MILLIS} ms of its own; with nothing behind the streams {}, of which this is {beside:.2}; the limit spreads by {:.2})",
        middle(&raw),
        back.spread()
    )?;
    back.verdict(out)
}

/// Seconds.
struct Turn {
    /// Until as many nodes as move had opened their first session, many at a time.
    opens: f64,
    /// Until 99 of 100 nodes of the killed gateway have a session again.
    back: f64,
}

/// One storm; all nodes must be back in the end.
async fn turn(house: &House, kind: Kind, wrong: &mut Wrong) -> Result<Turn> {
    let (dying, other) = (Served::start(kind, house.dir())?, Served::start(kind, house.dir())?);
    let (nodes, mut heard) = Nodes::of(house);
    let half = house.machines.len() / 2;
    let staying = nodes.open_all(&house.machines[half..], &[other.address]).await?;
    let begin = Instant::now();
    let moving = nodes.open_all(&house.machines[..half], &[dying.address]).await?;
    let opens = begin.elapsed().as_secs_f64();
    // Of each node that moves one command is in flight when its gateway dies, and one comes while it is away.
    let (mut in_flight, mut later) = (Vec::new(), Vec::new());
    if kind == Kind::Product {
        in_flight = house.signed(&house.queue(house.machines[..half].iter()).await?);
        later = house.signed(&house.queue(house.machines[..half].iter()).await?);
        nodes.silent.store(true, Ordering::Relaxed);
        House::sign(&house.db, &in_flight).await?;
        wait_for(&in_flight, &mut heard).await?;
        nodes.silent.store(false, Ordering::Relaxed);
    }

    let begin = Instant::now();
    dying.kill()?;
    let mut coming = JoinSet::new();
    for (place, mut open) in moving.into_iter().enumerate() {
        let (nodes, gateway) = (nodes.clone(), other.address);
        // Spread as a random back-off is, and the same in every turn.
        let back_off = Duration::from_millis(place as u64 * 7_919 % BACK_OFF_MILLIS);
        coming.spawn(async move {
            open.ended().await;
            tokio::time::sleep(back_off).await;
            loop {
                match nodes.open(Arc::clone(&open.machine), gateway).await {
                    Ok(open) => return (begin.elapsed().as_secs_f64(), open),
                    Err(_) => tokio::time::sleep(AGAIN).await,
                }
            }
        });
    }
    if kind == Kind::Product {
        House::sign(&house.db, &later).await?;
    }
    let back = timeout(PATIENCE, coming.join_all()).await.context("nodes stayed away")?;
    let mut seconds: Vec<f64> = back.iter().map(|(seconds, _)| *seconds).collect();
    seconds.sort_by(f64::total_cmp);

    let came = all_that_comes(&mut heard).await;
    for Signed { id, .. } in in_flight.iter().chain(&later) {
        let times = came.get(id).copied().unwrap_or(0);
        wrong.lost += usize::from(times == 0);
        wrong.doubled += times.saturating_sub(1);
    }
    wrong.stale += probes::commands_of_earlier_sessions(&house.db).await?;
    other.kill()?;
    drop((staying, back));
    probes::forget_commands(&house.db).await?;
    Ok(Turn { opens, back: seconds.get(seconds.len() * 99 / 100).copied().unwrap_or(f64::NAN) })
}

async fn wait_for(sent: &[Signed], heard: &mut UnboundedReceiver<Heard>) -> Result<()> {
    for _ in sent {
        timeout(PATIENCE, heard.recv()).await.context("a command did not arrive")?;
    }
    Ok(())
}

/// How often each command came.
async fn all_that_comes(heard: &mut UnboundedReceiver<Heard>) -> HashMap<CommandId, usize> {
    let mut came: HashMap<CommandId, usize> = HashMap::new();
    while let Ok(Some(heard)) = timeout(QUIET, heard.recv()).await {
        if let Heard::Command(id, _) = heard {
            *came.entry(id).or_default() += 1;
        }
    }
    came
}
