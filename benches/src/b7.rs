//! B7, dispatch: from the commit that makes a command dispatchable until its frame is at the node, at a steady rate over all
//! sessions.
//!
//! The limit: one row's commit, and twice an echo over as many streams at the same rate. Target: at the 99th percentile no
//! more than their sum. The load does not wait for answers.

use std::{
    collections::HashMap,
    io::Write,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use prost::Message as _;
use proto::agent::v1::{self as pb, node_frame::Frame as Up};
use schema::{
    clock::{Clock as _, SystemClock},
    command::CommandKind,
    id::CommandId,
};
use store::{
    commands::{self, NewCommand},
    testing::probes,
};
use tokio::task::JoinSet;

use crate::{
    Options,
    house::{House, Kind, Served, wire},
    measure::{Turns, median, percentile, sizes},
    swarm::{Heard, Nodes},
};

/// How long the load lasts.
const SECONDS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the bench; answers whether the machine was quiet enough.
pub(crate) fn run(options: &Options, out: &mut impl Write) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    sizes(&format!("B7 dispatch, {} /s", options.rate), options, out, |count, out| {
        runtime.block_on(size(options, count, out))
    })
}

async fn size(options: &Options, count: usize, out: &mut impl Write) -> Result<bool> {
    let house = House::with(count).await?;
    probes::raw_table(&house.db).await?;
    let (mut tail, mut middle, mut parts) = (Turns::default(), Vec::new(), Vec::new());
    for _ in 0..options.pairs.max(1) {
        let commit = commits(&house, options.rate).await?;
        let echo = echoes(&house, options.rate).await?;
        let dispatch = dispatches(&house, options.rate).await?;
        let at = |numbers: &[f64]| 1e3 * percentile(numbers, 99.0);
        parts.push((at(&commit), at(&echo)));
        tail.probe.push(at(&commit) + 2.0 * at(&echo));
        tail.product.push(at(&dispatch));
        middle.push(1e3 * percentile(&dispatch, 50.0));
    }
    house.close().await;
    writeln!(out, "\n{count} sessions")?;
    writeln!(
        out,
        "  dispatch {:8.1} ms at p99, {:.1} ms at p50",
        median(tail.product.iter().copied()),
        median(middle)
    )?;
    writeln!(
        out,
        "  probe    {:8.1} ms  (commit {:.1}, echo {:.1} at p99), spread {:.2}",
        median(tail.probe.iter().copied()),
        median(parts.iter().map(|part| part.0)),
        median(parts.iter().map(|part| part.1)),
        tail.spread()
    )?;
    writeln!(out, "  ratio    {:8.2}     (target: at most 1)", tail.ratio())?;
    tail.verdict(out)
}

/// The moments of a steady load.
fn moments(rate: usize) -> impl Iterator<Item = tokio::time::Instant> {
    let begin = tokio::time::Instant::now();
    (0..rate * SECONDS).map(move |nth| begin + Duration::from_secs_f64(nth as f64 / rate as f64))
}

async fn commits(house: &House, rate: usize) -> Result<Vec<f64>> {
    let mut running = JoinSet::new();
    for at in moments(rate) {
        tokio::time::sleep_until(at).await;
        let db = house.db.clone();
        running.spawn(async move { probes::raw_commit(&db).await.map(|()| at.elapsed().as_secs_f64()) });
    }
    Ok(running.join_all().await.into_iter().collect::<Result<_, _>>()?)
}

async fn echoes(house: &House, rate: usize) -> Result<Vec<f64>> {
    let served = Served::start(Kind::Probe, house.dir())?;
    let (nodes, mut heard) = Nodes::of(house);
    let open = nodes.open_all(&house.machines, &[served.address]).await?;
    let mut said: Vec<Instant> = Vec::new();
    for ((sequence, at), session) in (0_u64..).zip(moments(rate)).zip(open.iter().cycle()) {
        tokio::time::sleep_until(at).await;
        said.push(at.into_std());
        session.up.send(pb::NodeFrame { frame: Some(Up::Heartbeat(pb::Heartbeat { sequence })) }).await?;
    }
    let mut seconds = Vec::new();
    while seconds.len() < said.len() {
        if let Heard::Ack(sequence, at) = next(&mut heard).await? {
            let since = said.get(usize::try_from(sequence)?).context("an echo of nothing")?;
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
    // What is measured begins with the commit that makes it dispatchable, so everything before it is done before.
    let mut ready = Vec::new();
    for machine in house.machines.iter().cycle().take(rate * SECONDS) {
        let new = NewCommand {
            node_id: machine.id,
            kind: CommandKind::InventoryRefresh,
            payload: serde_json::json!({}),
            idempotency_key: CommandId::generate().to_string(),
            not_after: schema::time::Duration::from_secs(3_600).after(SystemClock.now()),
            min_generation: None,
            batch_id: None,
            secrets: Vec::new(),
            created_by: "bench".to_owned(),
        };
        let mut txn = house.db.begin().await?;
        let queued = commands::enqueue(&mut txn, &new).await?;
        txn.commit().await?;
        let signature = wire(house.worker.sign_command(machine.id, &queued.body)).encode_to_vec();
        ready.push((queued.command.id, signature));
    }
    let mut since = HashMap::new();
    let mut signing = JoinSet::new();
    for (at, (id, signature)) in moments(rate).zip(ready) {
        tokio::time::sleep_until(at).await;
        since.insert(id, at.into_std());
        let db = house.db.clone();
        signing.spawn(async move {
            let mut txn = db.begin().await?;
            commands::sign(&mut txn, &[(id, signature)]).await?;
            txn.commit().await
        });
    }
    signing.join_all().await.into_iter().collect::<Result<Vec<()>, _>>()?;
    let mut seconds = Vec::new();
    while seconds.len() < since.len() {
        if let Heard::Command(id, at) = next(&mut heard).await?
            && let Some(since) = since.get(&id)
        {
            seconds.push(at.saturating_duration_since(*since).as_secs_f64());
        }
    }
    served.kill()?;
    Ok(seconds)
}

async fn next(heard: &mut tokio::sync::mpsc::UnboundedReceiver<Heard>) -> Result<Heard> {
    tokio::time::timeout(PATIENCE, heard.recv()).await.context("nothing came")?.context("nobody is there")
}
