//! `run`: one-shot work on machines, now or not at all.

mod bundle;
mod meant;
mod payload;
pub(super) mod show;
mod turns;
pub(super) mod watch;

use std::{path::PathBuf, sync::Arc};

use clap::{Args, builder::NonEmptyStringValueParser};
use schema::{
    clock::SharedClock,
    command::CommandKind,
    time::{Duration, ParseDurationError},
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::{show::Row, watch::Watch};
use super::{get, owner::Owner};
use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::{Exit, Failure},
    output::{self, Output, text::count},
};

const EXAMPLES: &str = "\
Examples:
  better-compute run diag.nvml fra1-r12-u04
  better-compute run inventory.refresh --pool h100 --payload sections='[\"gpus\"]' --payload rescan=true
  better-compute run node.reboot fra1-r12-u04 --payload reason='new kernel' --not-after 2m
  better-compute run node.reboot --pool h100 --most 8 --one-at-a-time
  better-compute run logs.collect fra1-r12-u04 fra1-r12-u05 --no-wait

Every machine is looked up first: when one is not there or would refuse, nothing is queued for any.
What harms running work asks for --even-if-held on a machine that is suspended or frozen.
A command begins before its deadline or not at all, and runs once. Ctrl-C stops watching and leaves it
running; `better-compute commands` lists, shows and cancels. Exit code 1 when any did not succeed,
4 when the control plane refuses every one.
`better-compute kinds --commands` says what each kind does and takes.";

/// How many machines one line may touch when nobody says more: a slip of a selector stays small.
const USUAL_MOST: usize = 100;
/// Calls at once.
const AT_ONCE: usize = 8;

/// Run one-shot work on machines.
///
/// Queues a command for each machine and shows how each goes. What a machine should always be belongs in the fleet
/// repository; this is for what is done once, soon, or not at all.
#[derive(Debug, Args)]
#[command(
    after_help = EXAMPLES,
    override_usage = "better-compute run [OPTIONS] <KIND> <NODE>...\n       better-compute run [OPTIONS] <KIND> --pool <POOL>"
)]
pub struct Run {
    /// What to do
    #[arg(value_name = "KIND", value_parser = kind())]
    pub kind: CommandKind,
    /// On which machines, by name or id
    #[arg(value_name = "NODE", required_unless_present = "pool", value_parser = NonEmptyStringValueParser::new())]
    pub nodes: Vec<String>,
    /// On every machine of this pool
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,
    /// How many machines at most; 100 when nothing is said, 1 for what harms running work
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub most: Option<u32>,
    /// Begin on a machine when the one before has ended well and is back; stop at the first that has not
    #[arg(long, conflicts_with = "no_wait")]
    pub one_at_a_time: bool,
    /// Also on machines that are suspended or frozen, when it harms running work
    #[arg(long)]
    pub even_if_held: bool,
    /// What to do it with: KEY=VALUE, as often as needed, or one JSON object
    #[arg(long, value_name = "K=V|JSON")]
    pub payload: Vec<String>,
    /// The same from a file of JSON; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    pub file: Option<PathBuf>,
    /// How long a command may wait for its machine, 10s to 1h
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = waiting)]
    pub not_after: Duration,
    /// The generation that a machine must have applied before it begins
    #[arg(long, value_name = "N")]
    pub min_generation: Option<u64>,
    /// The destructive batch that it is part of, by name or id; it binds what the kind is told
    #[arg(long, value_name = "BATCH")]
    pub batch: Option<String>,
    /// Who answers for it
    #[command(flatten)]
    pub owner: Owner,
    /// A word for this intent: the same line with the same word queues nothing twice
    #[arg(long, value_name = "WORD")]
    pub key: Option<String>,
    /// Show what was queued and do not wait for the end
    #[arg(long)]
    pub no_wait: bool,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

/// How long a command may wait.
fn waiting(text: &str) -> Result<Duration, String> {
    let time: Duration = text.parse().map_err(|error: ParseDurationError| error.to_string())?;
    let allowed = (10..=3_600).contains(&time.as_secs());
    allowed.then_some(time).ok_or_else(|| "a command waits for 10s to 1h".to_owned())
}

/// The kinds that people run; the word of another one is refused with these.
fn kind() -> impl clap::builder::TypedValueParser<Value = CommandKind> {
    use clap::builder::{PossibleValuesParser, TypedValueParser as _};
    PossibleValuesParser::new(CommandKind::by_run().map(CommandKind::as_str))
        .map(|word| word.parse().expect("only words of kinds are possible"))
}

impl Run {
    /// Queues, watches and shows.
    ///
    /// # Errors
    /// When nothing could be asked. What became of each machine is in the exit code.
    pub async fn run(&self, clock: &SharedClock) -> Result<Exit, Failure> {
        let output = &Output::detect(self.format.format, clock.now());
        let payload = self.said()?;
        let client = Arc::new(Client::new(&self.target)?);
        let nodes = self.machines(&client).await?;
        if self.one_at_a_time {
            let turns = turns::take(self, &client, nodes, payload.as_ref(), output).await?;
            return self.show(
                &turns.rows,
                turns.stopped.is_none(),
                &turns.in_json(),
                turns.farewell(),
                &output.at(clock.now()),
            );
        }
        let mut rows = self.queue(&client, nodes, payload.as_ref(), &self.key()).await;
        if let [Row { outcome: Err(_), .. }] = rows.as_slice() {
            return rows.remove(0).outcome.map(|_| Exit::Failed);
        }
        if !self.no_wait && !Watch::new(&client, output).follow(&mut rows).await? {
            show::interrupted(&rows);
            return Ok(Exit::Failed);
        }
        self.show(&rows, true, &show::in_json(&rows), None, &output.at(clock.now()))
    }

    fn show(
        &self,
        rows: &[Row],
        complete: bool,
        document: &Value,
        farewell: Option<String>,
        output: &Output,
    ) -> Result<Exit, Failure> {
        if output.is_json() {
            output.json(document)?;
        } else {
            output.line(show::text(rows, self.no_wait, output))?;
            farewell.into_iter().for_each(|text| output::note(format!("\n{text}")));
        }
        let good = |row: &Row| if self.no_wait { row.outcome.is_ok() } else { row.has_succeeded() };
        Ok(if complete && rows.iter().all(good) { Exit::Ok } else { common_exit(rows) })
    }

    /// What the kind is told, complete; nothing where the batch says it.
    fn said(&self) -> Result<Option<Value>, Failure> {
        if self.batch.is_some() && self.payload.is_empty() && self.file.is_none() {
            return Ok(None);
        }
        let payload = payload::read(&self.payload, self.file.as_deref())?;
        // Told here with the place at fault, before anything is queued anywhere.
        let checked = self.kind.check_payload(&payload).map_err(|error| {
            Failure::usage(format!("the payload of {}: {}: {}", self.kind, error.path, error.expected))
                .hint(format!("`better-compute kinds --commands {}` says what it takes", self.kind))
        });
        checked.map(Some)
    }

    /// The word that stands for this line.
    fn key(&self) -> String {
        self.key.clone().unwrap_or_else(|| schema::id::RequestId::generate().to_string())
    }

    /// Every machine that is meant, once, whether its name or its id was said.
    async fn machines(&self, client: &Client) -> Result<Vec<Machine>, Failure> {
        let mut said = self.nodes.clone();
        if let Some(pool) = &self.pool {
            let found = get::list(client, get::Kind::Nodes, Some(pool), None).await?;
            if found.is_empty() {
                // A pool that is not there is told apart from one without machines; who may not look, is not told.
                let failure = client.call("pools.get", &json!({ "name": pool })).await.err();
                if let Some(failure) = failure.filter(|failure| failure.exit == Exit::Failed) {
                    return Err(failure);
                }
            }
            said.extend(found.iter().filter_map(|node| node.get("id")?.as_str().map(str::to_owned)));
        }
        let meant = meant::look_up(client, self.kind, &said).await?;
        let (meant, left_out) = meant::leave_out(meant, &self.nodes);
        left_out.into_iter().for_each(output::note);
        if let Some(failure) = meant::wrong(self.kind, &meant) {
            return Err(failure);
        }
        let nodes = once(meant.iter().filter_map(meant::Meant::machine).collect());
        let usual = if self.kind.row().destructive { 1 } else { USUAL_MOST };
        let most = self.most.map_or(usual, |most| most as usize);
        if nodes.is_empty() {
            let pool = self.pool.as_deref().unwrap_or_default();
            return Err(Failure::failed(format!("pool {pool} has no machines")));
        }
        if nodes.len() > most {
            let machines = count(nodes.len() as u64, "machine");
            let what = if self.kind.row().destructive { " and harms what runs on them" } else { "" };
            return Err(
                Failure::usage(format!("{} would run on {machines}{what}", self.kind)).hint(self.more(nodes.len()))
            );
        }
        if self.kind.row().destructive {
            let held = meant::held(&meant);
            if let Some(failure) = held.refusal(self.kind).filter(|_| !self.even_if_held) {
                return Err(failure);
            }
            held.lines().for_each(output::note);
        }
        Ok(nodes)
    }

    /// How to say that so many are meant.
    fn more(&self, machines: usize) -> String {
        let turns = if self.kind.row().destructive && !self.one_at_a_time {
            ", and --one-at-a-time for one after the other"
        } else {
            ""
        };
        format!("say --most {machines} when that is meant{turns}")
    }

    /// Queues a command for each machine, a few at a time; a machine that is refused stops no other.
    async fn queue(&self, client: &Arc<Client>, nodes: Vec<Machine>, payload: Option<&Value>, key: &str) -> Vec<Row> {
        let owner = self.owner.who(client);
        let mut running = JoinSet::new();
        let mut rows: Vec<Option<Row>> = nodes.iter().map(|_| None).collect();
        for (index, node) in nodes.into_iter().enumerate() {
            if running.len() >= AT_ONCE {
                place(&mut rows, running.join_next().await);
            }
            let mut input = self.input(&node.id, payload, &format!("{key}:{}", node.id));
            if let Some(owner) = &owner {
                input["owner"] = owner.as_str().into();
            }
            let client = Arc::clone(client);
            running.spawn(async move {
                (index, Row { outcome: client.call("commands.run", &input).await, node: node.name })
            });
        }
        while !running.is_empty() {
            place(&mut rows, running.join_next().await);
        }
        rows.into_iter().flatten().collect()
    }

    fn input(&self, node: &str, payload: Option<&Value>, key: &str) -> Value {
        let mut input = json!({
            "node": node,
            "kind": self.kind,
            "notAfterSeconds": self.not_after.as_secs(),
            "idempotencyKey": key,
        });
        if let Some(payload) = payload {
            input["payload"] = payload.clone();
        }
        if let Some(generation) = self.min_generation {
            input["minGeneration"] = generation.into();
        }
        if let Some(batch) = &self.batch {
            input["batch"] = batch.as_str().into();
        }
        input
    }
}

/// How it ends when not all went well: what all machines were told, where they were told the same.
fn common_exit(rows: &[Row]) -> Exit {
    let mut exits = rows.iter().map(|row| row.outcome.as_ref().map_or_else(|failure| failure.exit, |_| Exit::Failed));
    let first = exits.next().unwrap_or(Exit::Failed);
    if exits.all(|exit| exit == first) { first } else { Exit::Failed }
}

/// A machine that is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Machine {
    id: String,
    name: String,
}

/// Each machine once, in the order in which it was first said.
fn once(mut machines: Vec<Machine>) -> Vec<Machine> {
    let mut seen = std::collections::BTreeSet::new();
    machines.retain(|machine| seen.insert(machine.id.clone()));
    machines
}

fn place(rows: &mut [Option<Row>], done: Option<Result<(usize, Row), tokio::task::JoinError>>) {
    match done {
        Some(Ok((index, row))) => rows[index] = Some(row),
        Some(Err(error)) => output::note(format!("a call ended in a bug: {error}")),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_within_a_batch_is_the_batchs_to_say_unless_something_is_said() {
        use clap::Parser as _;
        let told = |more: &[&str]| {
            let line = ["better-compute", "run", "node.reboot", "gpu-1"].into_iter().chain(more.iter().copied());
            let crate::args::Command::Run(run) = crate::args::Cli::try_parse_from(line).unwrap().command else {
                unreachable!()
            };
            let payload = run.said().unwrap();
            let input = run.input("node_1", payload.as_ref(), "k");
            (input["batch"].clone(), input.get("payload").is_some())
        };
        assert_eq!(told(&["--batch", "kernel-5"]), ("kernel-5".into(), false));
        assert_eq!(told(&["--batch", "kernel-5", "--payload", "reason=x"]), ("kernel-5".into(), true));
        assert_eq!(told(&[]), (Value::Null, true));
    }

    #[test]
    fn what_is_refused_for_every_machine_ends_as_a_refusal_and_a_mixture_does_not() {
        let row = |outcome| Row { node: "gpu-1".to_owned(), outcome };
        let refused = || row(Err(Failure::refused("x", "no")));
        let away = || row(Err(Failure::new(Exit::Unreachable, "away")));
        assert_eq!(common_exit(&[refused(), refused()]), Exit::Refused);
        assert_eq!(common_exit(&[away(), away()]), Exit::Unreachable);
        assert_eq!(common_exit(&[refused(), away()]), Exit::Failed);
        assert_eq!(common_exit(&[refused(), row(Ok(Value::Null))]), Exit::Failed);
        assert_eq!(common_exit(&[]), Exit::Failed);
    }

    #[test]
    fn a_machine_that_is_said_by_name_and_by_id_is_one() {
        let machine = |n: u32| Machine { id: format!("node_{n}"), name: format!("gpu-{n}") };
        let all = vec![machine(1), machine(9), machine(1)];
        assert_eq!(once(all), [machine(1), machine(9)]);
    }
}
