//! B7, dispatch: from the moment when a command is committed until its frame is at the node, at a steady rate over all sessions.
//!
//! The commands were queued before; the signer of the control plane gets each in its moment, as it does after a commit, and signs
//! what waits at once. The limit: one row's commit, and twice an echo over as many streams at the same rate. Target: at the 99th
//! percentile no more than their sum. The load does not wait for answers.

use std::{collections::HashMap, io::Write, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use proto::agent::v1::{self as pb, node_frame::Frame as Up};
use reconciler::reconcile::command::FastSigner;
use store::testing::probes;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    Options,
    house::{House, Kind, Served},
    measure::{Line, Target, Turns, enough_files, median, percentile, sizes, table},
    swarm::{Heard, Nodes},
};

/// How long the load lasts.
const SECONDS: usize = 3;
/// How much of that is not counted.
const RUN_IN: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the bench; answers whether the machine was quiet enough.
pub(crate) fn run(options: &Options, out: &mut impl Write) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    sizes(&format!("B7 dispatch, {} /s", options.rate), options, out, |count, out| {
        runtime.block_on(size(options, count, out))
    })
}

async fn size(options: &Options, count: usize, out: &mut impl Write) -> Result<bool> {
    enough_files(count + 1_000)?;
    let house = House::with(count).await?;
    probes::raw_table(&house.db).await?;
    probes::used_server(&house.db).await?;
    let (mut tail, mut middle, mut parts) = (Turns::default(), Vec::new(), Vec::new());
    for turn in 0..=options.pairs.max(1) {
        let commit = commits(&house, options.rate).await?;
        let echo = echoes(&house, options.rate).await?;
        let dispatch = dispatches(&house, options.rate).await?;
        if turn == 0 {
            // A new PostgreSQL still makes the files that it writes to.
            continue;
        }
        let at = |numbers: &[f64]| 1e3 * percentile(numbers, 99.0);
        parts.push((at(&commit), at(&echo)));
        tail.probe.push(at(&commit) + 2.0 * at(&echo));
        tail.product.push(at(&dispatch));
        middle.push(1e3 * percentile(&dispatch, 50.0));
    }
    house.close().await;
    let millis = |numbers: &[f64]| format!("{:.1} ms", median(numbers.iter().copied()));
    let line = Line {
        what: "commit to frame, p99",
        product: millis(&tail.product),
        probe: millis(&tail.probe),
        value: tail.ratio(),
        target: Target::AtMost(1.0),
    };
    table(out, &format!("{count} sessions"), &[line])?;
    writeln!(
        out,
        "  (half of them within {:.1} ms; the limit is a commit's {:.1} and twice an echo's {:.1} ms; it spreads by {:.2})",
        median(middle),
        median(parts.iter().map(|part| part.0)),
        median(parts.iter().map(|part| part.1)),
        tail.spread()
    )?;
    tail.verdict(out)
}

/// The moments of a steady load, and whether each is counted.
fn moments(rate: usize) -> impl Iterator<Item = (tokio::time::Instant, bool)> {
    let begin = tokio::time::Instant::now();
    (0..rate * SECONDS).map(move |nth| {
        let after = Duration::from_secs_f64(nth as f64 / rate as f64);
        (begin + after, after >= RUN_IN)
    })
}

async fn commits(house: &House, rate: usize) -> Result<Vec<f64>> {
    let mut running = JoinSet::new();
    for (at, counts) in moments(rate) {
        tokio::time::sleep_until(at).await;
        let db = house.db.clone();
        running
            .spawn(async move { probes::raw_commit(&db).await.map(|()| counts.then(|| at.elapsed().as_secs_f64())) });
    }
    let seconds: Vec<Option<f64>> = running.join_all().await.into_iter().collect::<Result<_, _>>()?;
    Ok(seconds.into_iter().flatten().collect())
}

async fn echoes(house: &House, rate: usize) -> Result<Vec<f64>> {
    let served = Served::start(Kind::Probe, house.dir())?;
    let (nodes, mut heard) = Nodes::of(house);
    let open = nodes.open_all(&house.machines, &[served.address]).await?;
    let mut said = HashMap::new();
    for ((sequence, (at, counts)), session) in (0_u64..).zip(moments(rate)).zip(open.iter().cycle()) {
        tokio::time::sleep_until(at).await;
        said.extend(counts.then(|| (sequence, at.into_std())));
        session.up.send(pb::NodeFrame { frame: Some(Up::Heartbeat(pb::Heartbeat { sequence })) }).await?;
    }
    let mut seconds = Vec::new();
    while seconds.len() < said.len() {
        if let Heard::Ack(sequence, at) = next(&mut heard).await?
            && let Some(since) = said.get(&sequence)
        {
            seconds.push(at.saturating_duration_since(*since).as_secs_f64());
        }
    }
    served.kill()?;
    Ok(seconds)
}

async fn dispatches(house: &House, rate: usize) -> Result<Vec<f64>> {
    let served = Served::start(Kind::Product, house.dir())?;
    let (nodes, mut heard) = Nodes::of(house);
    let _open = nodes.open_all(&house.machines, &[served.address]).await?;
    // What is measured begins when they are committed.
    let ready = house.queue(house.machines.iter().cycle().take(rate * SECONDS)).await?;
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let (signer, signing) = FastSigner::new(house.db.clone(), Arc::clone(&house.signer) as _, None, stop);
    tokio::spawn(signing);
    let mut since = HashMap::new();
    for ((at, counts), command) in moments(rate).zip(ready) {
        tokio::time::sleep_until(at).await;
        since.extend(counts.then(|| (command.id, at.into_std())));
        signer.committed(command).await;
    }
    let mut seconds = Vec::new();
    while seconds.len() < since.len() {
        if let Heard::Command(id, at) = next(&mut heard).await?
            && let Some(since) = since.get(&id)
        {
            seconds.push(at.saturating_duration_since(*since).as_secs_f64());
        }
    }
    served.kill()?;
    probes::forget_commands(&house.db).await?;
    Ok(seconds)
}

async fn next(heard: &mut tokio::sync::mpsc::UnboundedReceiver<Heard>) -> Result<Heard> {
    tokio::time::timeout(PATIENCE, heard.recv()).await.context("nothing came")?.context("nobody is there")
}
