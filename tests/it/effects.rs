//! What a plan says and what a host does are one thing.
//!
//! Two hundred pairs of fleets are made from seeds. For each machine the plan names effects; then the machine is brought
//! from the one fleet to the other on a root directory of its own, with the daemon's own code, and what changed there
//! (files, links, kernel values, programs that ran) is held against what the plan had said. Nothing is read back from
//! the classifier: [`expect`] says in its own words what an effect must leave behind.

use std::{collections::BTreeMap, fs, process::Command};

use reconciler::plan::{Observed, plan};
use schema::{
    effect::{Effect, EffectClass},
    fleet::{Fleet, NodeOverlay, Sources, compose, load},
    spec::NodeSpec,
};
use tests::World;

mod expect;
mod generate;
mod host;

use host::{Job, Measured};

const PAIRS: u64 = 200;

/// Set for the process that becomes a host: the directory that is its root.
const ROOT: &str = "BC_EFFECTS_ROOT";

#[test]
fn what_hosts_do_is_what_plans_say() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: a directory becomes a root for the superuser only");
        return;
    }
    let world = World::new();
    let (mut machines, mut classes) = (0, BTreeMap::<EffectClass, usize>::new());
    for seed in 0..PAIRS {
        let (before, after) = generate::pair(seed);
        let (old, new) = (fleet(seed, &before), fleet(seed, &after));
        let planned = plan(&new, &Observed::from_fleet(&old), generate::now()).plan;
        for name in generate::NODES {
            let job = Job { before: spec(&old, name), after: spec(&new, name) };
            let effects: Vec<Effect> = planned
                .nodes
                .iter()
                .find(|node| node.node.as_str() == name)
                .and_then(|node| planned.effects.get(node.effects? as usize))
                .map(|effects| effects.items.clone())
                .unwrap_or_default();
            let root = world.path(format!("{seed}-{name}"));
            let measured = measure(&root, &job);
            assert_eq!(measured.problems, Vec::<String>::new(), "seed {seed}, {name}");
            let expected = expect::of(&effects, &job, &measured);
            let told = || format!("seed {seed}, {name}\nplanned {effects:#?}\nbefore {before:#?}\nafter {after:#?}");
            assert_eq!(measured.paths(), expected.paths, "paths: {}", told());
            assert_eq!(measured.programs(), expected.programs, "programs: {}", told());
            assert_eq!(expect::class(&measured, &job), expected.class, "class: {}", told());
            machines += 1;
            *classes.entry(expected.class).or_default() += 1;
            fs::remove_dir_all(&root).expect("removed");
        }
    }
    println!("{machines} machines: {classes:?}");
    for class in
        [EffectClass::None, EffectClass::Live, EffectClass::ServiceRestart, EffectClass::Drain, EffectClass::Reboot]
    {
        assert!(classes.contains_key(&class), "no pair came to {class}");
    }
}

/// The process that becomes a host; nothing by itself.
#[test]
fn a_host_of_its_own() {
    if let Ok(root) = std::env::var(ROOT) {
        host::be(root.as_ref());
    }
}

fn fleet(seed: u64, files: &BTreeMap<String, String>) -> Fleet {
    let sources: Sources = files.iter().map(|(path, text)| (path.as_str(), text.as_bytes().to_vec())).collect();
    let loaded = load(&sources);
    let found: Vec<String> =
        loaded.diagnostics.iter().filter(|found| found.is_error()).map(|found| found.message.clone()).collect();
    loaded.fleet.unwrap_or_else(|| unreachable!("seed {seed} is no fleet: {found:#?}\n{files:#?}"))
}

fn spec(fleet: &Fleet, node: &str) -> NodeSpec {
    let document = &fleet.nodes[node];
    let overlay = NodeOverlay::of(document);
    let pool = &fleet.pools[&document.pool.as_ref().expect("a pool").value];
    let profile = overlay.profile.as_ref().unwrap_or(&pool.profile.value);
    let template = fleet.host_template(&pool.name, profile).expect("a template");
    let composed = compose(&template, &overlay, node).expect("composes");
    NodeSpec { host: composed.host, access: composed.access }
}

fn measure(root: &std::path::Path, job: &Job) -> Measured {
    generate::root(root);
    job.write(root);
    let me = std::env::current_exe().expect("this program");
    let output = Command::new(me)
        .args(["--exact", "effects::a_host_of_its_own", "--nocapture", "--test-threads=1"])
        .env(ROOT, root)
        .output()
        .expect("runs");
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Measured::read(root)
}
