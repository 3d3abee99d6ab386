//! `kinds`: what a fleet repository can hold.

use clap::Args;
use schema::object::Kind;
use serde_json::{Value, json};

use crate::{
    args::FormatArg,
    exit::{Exit, Failure},
    output::{Output, Table},
};

const EXAMPLES: &str = "\
Examples:
  better-compute kinds
  better-compute kinds --format json";

/// List the kinds of objects a fleet repository can hold in this version.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Kinds {
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
}

const KINDS: [(Kind, &str, &str); 8] = [
    (Kind::Fleet, "fleet.kdl", "who the fleet is, and its brakes; one per repository"),
    (Kind::Site, "sites/fra1.kdl", "a place with machines and gateways"),
    (Kind::Pool, "pools/h100.kdl", "machines that are alike and are booked together"),
    (Kind::Profile, "profiles/gpu-host.kdl", "what a host must look like: sysctls, modules, files, units, keys"),
    (Kind::Image, "images/ubuntu-24.04.yaml", "bytes for a disk, named by digest"),
    (Kind::Rollout, "rollouts/at-once.kdl", "how a change travels"),
    (Kind::Node, "nodes/fra1-r12.kdl", "one machine that needs a word of its own"),
    (Kind::Removed, "removed.kdl", "an object that is to go; without it nothing goes"),
];

impl Kinds {
    /// Lists.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn run(&self, output: &Output) -> Result<Exit, Failure> {
        if output.is_json() {
            let kinds: Vec<Value> = KINDS
                .iter()
                .map(|(kind, file, says)| json!({ "kind": kind.as_str(), "file": file, "says": says }))
                .collect();
            output.json(&json!({ "kinds": kinds }))?;
            return Ok(Exit::Ok);
        }
        let mut table = Table::new(&["kind", "usual file", "it says"]);
        for (kind, file, says) in KINDS {
            table.row([kind.as_str().into(), file.into(), says.into()]);
        }
        output.table(&table, "")?;
        Ok(Exit::Ok)
    }
}
