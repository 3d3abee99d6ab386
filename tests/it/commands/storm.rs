//! Many commands while everything around them is cut, killed and frozen. `BC_STORM` says how many, `BC_SEED` which storm.

use nix::sys::signal::Signal;
use serde_json::Value;
use tests::{Proxy, until_some};

use super::Fleet;

const KINDS: [&str; 4] = ["node.reboot", "logs.collect", "inventory.refresh", "diag.nvml"];
const STEPS: [&str; 8] = [
    "before:accept",
    "after:accept",
    "before:start",
    "after:start",
    "before:effect",
    "after:effect",
    "before:settle",
    "after:settle",
];

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }
}

fn trouble(fleet: &mut Fleet, proxy: &Proxy, dice: &mut Dice) {
    let through = format!("https://{}", proxy.address());
    let signal = |fleet: &Fleet, signal| fleet.node.daemon.as_ref().expect("a daemon").signal(signal);
    if fleet.node.daemon.as_mut().is_some_and(|daemon| daemon.ended().is_some()) {
        fleet.node.wait_dead();
        fleet.node.run(&["--gateway", &through]);
    }
    match dice.below(12) {
        0 | 1 => proxy.cut(),
        2 => proxy.drip(true),
        3 => proxy.drip(false),
        4 => signal(fleet, Signal::SIGSTOP),
        5 => signal(fleet, Signal::SIGCONT),
        6 => {
            fleet.node.kill();
            fleet.node.run(&["--gateway", &through]);
        }
        7 => {
            fleet.node.kill();
            let step = STEPS[dice.below(STEPS.len())];
            fleet.node.run_with(&["--gateway", &through], &[("BCD_KILL_AT", step)]);
        }
        8 if dice.below(3) == 0 => {
            fleet.up.process.kill();
            fleet.up.restart();
        }
        _ => {}
    }
}

#[test]
fn whatever_happens_nothing_is_lost_twice_or_late() {
    let (count, seed) = (number("BC_STORM", 40), number("BC_SEED", 4));
    let mut dice = Dice(seed);
    let (mut fleet, proxy) = Fleet::behind_proxy();
    let mut asked = Vec::new();
    for _ in 0..count {
        let kind = KINDS[dice.below(KINDS.len())];
        let seconds = format!("notAfterSeconds:={}", [10, 30, 600][dice.below(3)]);
        asked.push((fleet.ask(kind, &[&seconds]), kind));
        trouble(&mut fleet, &proxy, &mut dice);
    }
    // The weather clears.
    proxy.drip(false);
    if let Some(daemon) = &fleet.node.daemon {
        daemon.signal(Signal::SIGCONT);
    }
    fleet.node.kill();
    fleet.node.run(&[]);

    let ended: Vec<(Value, &str)> = asked
        .iter()
        .map(|(id, kind)| {
            let command = until_some(&format!("{id} ends"), || {
                let command = fleet.command(id);
                let open = ["pending", "dispatched", "acked", "running"];
                (!open.contains(&command["state"].as_str().expect("a state"))).then_some(command)
            });
            (command, *kind)
        })
        .collect();
    let boots = fleet.node.boots() - 1;
    let said = format!("storm {seed}");
    let reboots = |state: &str| {
        ended.iter().filter(|(command, kind)| *kind == "node.reboot" && command["state"] == state).count()
    };
    assert!(boots <= reboots("succeeded"), "{said}: {boots} boots, {} reboots succeeded", reboots("succeeded"));
    for (command, kind) in ended.iter().filter(|(_, kind)| *kind != "node.reboot") {
        let (state, reason) = (command["state"].as_str().unwrap_or(""), command["reason"].as_str().unwrap_or(""));
        let fair = matches!(
            (state, reason),
            ("succeeded", _) | ("expired", _) | ("rejected", "EXPIRED") | ("failed", "interrupted" | "checks-unknown")
        );
        assert!(fair, "{said}: {kind}: {command:#}");
    }
    let journal = fleet.node.journal();
    let entries = journal["commands"].as_array().expect("entries");
    let mut done = 0;
    for entry in entries {
        let runs = entry["runs"].as_array().cloned().unwrap_or_default();
        let time = |value: &Value| value.as_str().expect("a time").parse::<schema::time::Timestamp>().expect("a time");
        for run in &runs {
            assert!(time(&run["at"]) < time(&entry["notAfter"]), "{said}: late: {entry:#}");
        }
        let effects: usize = runs.iter().filter_map(|run| run["effects"].as_array()).map(Vec::len).sum();
        if entry["kind"] == "node.reboot" {
            assert!(runs.len() <= 1 && effects <= 1, "{said}: twice: {entry:#}");
            done += effects;
        }
        let known = ended.iter().find(|(command, _)| command["id"] == entry["id"]).expect("asked for");
        if known.0["state"] != "expired" && entry["ended"]["state"] != known.0["state"] {
            // The control plane may have believed the new boot before the node's own word.
            let proven = entry["kind"] == "node.reboot" && known.0["state"] == "succeeded";
            assert!(proven, "{said}: {entry:#} but {:#}", known.0);
        }
    }
    assert!(boots <= done, "{said}: {boots} boots, and {done} were about to be");
}
