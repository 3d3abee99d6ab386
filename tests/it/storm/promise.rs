//! What was promised, held against what the machines kept themselves.
//!
//! A described machine keeps each of its boots, and with each the word of whoever wanted it; its daemon's journal keeps when
//! a command began. What the control plane says is what is judged, and never the witness.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use nix::time::{ClockId, clock_gettime};
use schema::{
    clock::{Clock as _, SystemClock},
    command::CommandKind,
    time::Timestamp,
};
use serde_json::Value;

use super::{Asked, Machine, Storm, weather::Sky};

/// How the time of day and the kernel's own clock go together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Uptime {
    booted: Timestamp,
}

impl Uptime {
    pub(super) fn now() -> Self {
        let up = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).expect("the kernel measures"));
        Self { booted: SystemClock.now().checked_sub(up).expect("a time") }
    }

    /// When something happened that a machine kept.
    fn time(self, up: u64) -> Timestamp {
        self.booted.checked_add(Duration::from_millis(up)).expect("a time")
    }
}

/// Two that begin at once on two threads of one lane may be written down in either order.
const AT_ONCE: Duration = Duration::from_secs(3);

fn time(value: &Value) -> Timestamp {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or(Timestamp::MAX)
}

/// Every promise that was not kept, for people.
pub(super) fn broken(storm: &Storm, ended: &[Value]) -> Vec<String> {
    let mut broken = Vec::new();
    for (asked, command) in storm.asked.iter().zip(ended) {
        if command.is_null() {
            broken.push(format!("lost: {} ({}) is not there", asked.id, asked.kind));
        }
    }
    for (index, machine) in storm.machines.iter().enumerate() {
        let here = |(asked, command): &(&Asked, &Value)| asked.machine == index && !command.is_null();
        let commands: Vec<(&Asked, &Value)> = storm.asked.iter().zip(ended).filter(here).collect();
        let entries = machine.entries();
        reboots(storm, machine, &commands, &mut broken);
        begins(machine, &commands, &entries, &mut broken);
        order(machine, &entries, &mut broken);
    }
    let statement = "SELECT doc::json->>'commandId', count(*) FROM outbox WHERE kind = 'command.settled' GROUP BY 1 HAVING count(*) <> 1";
    let told = storm.apart.sql(statement);
    if !told.is_empty() {
        broken.push(format!("ended more than once: {told}"));
    }
    broken
}

/// What the machine did is what was asked for, once, and in time.
fn reboots(storm: &Storm, machine: &Machine, commands: &[(&Asked, &Value)], broken: &mut Vec<String>) {
    let deeds = machine.node.deeds();
    for deed in deeds.iter().filter(|deed| !commands.iter().any(|(asked, _)| asked.word == deed.to)) {
        broken.push(format!("{}: nobody asked for {deed:?}", machine.name));
    }
    let boots = machine.node.boots() - 1 - machine.outages.len();
    let succeeded =
        commands.iter().filter(|(asked, command)| asked.kind == "node.reboot" && command["state"] == "succeeded");
    if boots > deeds.len() || boots > succeeded.count() {
        broken.push(format!("{}: {boots} boots and {} deeds", machine.name, deeds.len()));
    }
    let booted_since = |command: &Value| {
        let deeds = deeds.iter().map(|deed| storm.uptime.time(deed.up));
        let asked_at = time(&command["createdAt"]);
        deeds.chain(machine.outages.iter().copied()).any(|at| at > asked_at)
    };
    for (asked, command) in commands.iter().filter(|(asked, _)| asked.kind == "node.reboot") {
        let own: Vec<Timestamp> =
            deeds.iter().filter(|deed| deed.to == asked.word).map(|deed| storm.uptime.time(deed.up)).collect();
        let (state, told) =
            (command["state"].as_str().unwrap_or_default(), format!("{}: {command:#}\n{own:?}", machine.name));
        let fair = match state {
            // It may have been killed between saying so and doing it, and another boot proves what this one wanted.
            "succeeded" => own.len() == 1 || booted_since(command),
            "failed" => own.len() <= 1 && ["interrupted", "journal-lost"].iter().any(|word| command["reason"] == *word),
            "rejected" => own.is_empty() && ["EXPIRED"].iter().any(|word| command["reason"] == *word),
            "expired" | "cancelled" => own.is_empty(),
            _ => false,
        };
        if !fair || own.len() > 1 {
            broken.push(format!("not as promised: {told}"));
        }
        // What began in time may still be done as long as its kind may run.
        let latest = CommandKind::NodeReboot.row().timeout.after(time(&command["notAfter"]));
        if own.iter().any(|at| *at >= latest) {
            broken.push(format!("late: {told}"));
        }
    }
}

/// Nothing begins after its deadline; what is not safe to run twice begins once; and the ends agree.
fn begins(machine: &Machine, commands: &[(&Asked, &Value)], entries: &[Value], broken: &mut Vec<String>) {
    for (asked, command) in commands {
        let kept: Vec<&Value> = entries.iter().filter(|entry| entry["id"] == asked.id.as_str()).collect();
        let runs: Vec<&Value> = kept.iter().filter_map(|entry| entry["runs"].as_array()).flatten().collect();
        let told = || format!("{}: {command:#}\n{kept:#?}", machine.name);
        if runs.iter().any(|run| time(&run["at"]) >= time(&command["notAfter"])) {
            broken.push(format!("late: {}", told()));
        }
        let effects: usize = runs.iter().filter_map(|run| run["effects"].as_array()).map(Vec::len).sum();
        if asked.kind == "node.reboot" && (runs.len() > 1 || effects > 1) {
            broken.push(format!("twice: {}", told()));
        }
        let (state, reason) =
            (command["state"].as_str().unwrap_or_default(), command["reason"].as_str().unwrap_or_default());
        // One that is in a journal that was lost may be in the next one, too.
        let own: Vec<&str> = kept.iter().map(|entry| entry["ended"]["state"].as_str().unwrap_or("open")).collect();
        let agrees = |own: Option<&str>| match (state, own) {
            // The control plane may believe a new boot before the machine's own word, and a machine may never have heard.
            ("succeeded", Some("succeeded")) => true,
            ("succeeded", _) => asked.kind == "node.reboot",
            ("failed", _) if reason == "journal-lost" => asked.kind == "node.reboot" && !machine.lost.is_empty(),
            ("expired" | "cancelled", None) => true,
            ("expired", Some(own)) => own == "rejected" || own == "failed" && reason == "timeout",
            (state, Some(own)) => state == own,
            (_, None) => false,
        };
        let fair = asked.kind == "node.reboot"
            || matches!(
                (state, reason),
                ("succeeded" | "expired" | "cancelled", _)
                    | ("rejected", "EXPIRED")
                    | ("failed", "interrupted" | "checks-unknown")
            );
        let agrees = if own.is_empty() { agrees(None) } else { own.iter().any(|own| agrees(Some(own))) };
        if !agrees || !fair {
            broken.push(format!("not as promised: {}", told()));
        }
    }
}

/// Within a lane commands begin in the order of their numbers. The journal keeps the latest that it may have been, which is
/// earlier again when a quicker answer about the time comes; the log keeps the time of day, which nobody moves here.
fn order(machine: &Machine, entries: &[Value], broken: &mut Vec<String>) {
    let log = machine.node.log();
    let mut began: BTreeMap<&str, Vec<Timestamp>> = BTreeMap::new();
    for line in log.lines() {
        let Some((before, _)) = line.split_once(" begins: ") else { continue };
        let mut words = before.split_whitespace();
        if let (Some(at), Some(id)) = (words.next(), words.next_back()) {
            began.entry(id).or_default().push(at.parse().expect("a time"));
        }
    }
    let mut lanes: BTreeMap<&str, Vec<(u64, Timestamp)>> = BTreeMap::new();
    for entry in entries {
        let lane = match entry["kind"].as_str().unwrap_or_default() {
            "node.reboot" | "inventory.refresh" => "control",
            "logs.collect" => "bulk",
            _ => "provision",
        };
        // A daemon that is killed between its journal and its log has not said that it began.
        let runs = entry["runs"].as_array().map_or(0, Vec::len);
        let said = began.get(entry["id"].as_str().unwrap_or_default()).filter(|said| said.len() == runs);
        if let Some(first) = said.and_then(|said| said.first()) {
            lanes.entry(lane).or_default().push((entry["seq"].as_u64().unwrap_or_default(), *first));
        }
    }
    if lanes.is_empty() && !entries.is_empty() {
        broken.push(format!("{}: its log says of no command when it began", machine.name));
    }
    for (lane, mut began) in lanes {
        began.sort_unstable();
        for pair in began.windows(2) {
            if pair[0].1 > pair[1].1.saturating_add(AT_ONCE).expect("a time") {
                broken.push(format!("{}: {lane}: {} overtook {}: {pair:?}", machine.name, pair[1].0, pair[0].0));
            }
        }
    }
}

/// What happened, for people.
pub(super) fn summary(ended: &[Value], sky: &Sky) -> String {
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    for command in ended {
        let word = |key: &str| command[key].as_str().unwrap_or_default();
        let reason = if word("reason").is_empty() { String::new() } else { format!(" ({})", word("reason")) };
        *ends.entry(format!("{} {}{reason}", word("kind"), word("state"))).or_default() += 1;
    }
    let mut text = format!("{} commands:", ended.len());
    for (end, count) in ends {
        let _ = write!(text, "\n  {count:5} {end}");
    }
    format!("{text}\n{}", sky.told())
}
