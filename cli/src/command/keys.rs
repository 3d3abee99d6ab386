//! `keys`: makes the keys of a control plane whose roles run apart, and hands out what a gateway needs of them.

mod followers;
mod rotate;
mod service;
mod status;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use schema::clock::SharedClock;
use serde_json::json;
use store::{Db, DbConfig, migrate};

use rotate::Rotate;
use service::Service;
use status::Status;

use super::token::once;
use crate::{
    client::{Client, Target},
    data_dir,
    exit::{During as _, Exit, Failure},
    output,
    up::{identity, keys::KeyDir, names},
};

const EXAMPLES: &str = "\
Examples:
  better-compute keys init --keys ./keys --trust-domain compute.example.com \\
      --database postgres://…
  better-compute keys gateway --keys ./keys --out ./gateway-keys \\
      --name gw.fra1.example.com
  better-compute keys status                     where each rotation stands
  better-compute keys rotate node-ca             the next step
  better-compute keys service                    the key that proposals are signed with

`up` makes its keys by itself. Nodes believe these keys, and only they sign the step to new ones:
keep the directory safe, and a copy of it that is as new as the last rotation. Without it every
machine has to join anew.";

/// Make and rotate the keys of a control plane.
///
/// `init` makes all keys, sealed under a deployment secret, and binds the database to them. `gateway` makes a directory for
/// one gateway: its certificates and whom it believes, and nothing that could sign for the control plane. `rotate` replaces
/// the keys that nodes believe while everything runs, and `status` says how far that is.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Keys {
    /// What to do
    #[command(subcommand)]
    pub verb: Verb,
}

/// What can be done with keys.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Replace keys that nodes believe, a step at a time, or show where each rotation stands
    Rotate(Box<Rotate>),
    /// Show where each rotation stands, and who is behind
    Status(Box<Status>),
    /// Make the key that proposals of batches are signed with, and take it to the trust policy
    Service(Box<Service>),
    /// Make all keys of a new control plane, and bind a database to them
    Init {
        /// Directory for the keys
        #[arg(long, value_name = "DIR")]
        keys: PathBuf,
        /// Trust domain of every identity; fixed for good
        #[arg(long, value_name = "DOMAIN")]
        trust_domain: String,
        /// Admit machines that a file describes; fixed for good
        #[arg(long)]
        dev: bool,
        /// The database
        #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
        database: String,
    },
    /// Make the keys of one process that runs controllers and has no other key
    Signing {
        /// Directory with the control plane's keys
        #[arg(long, value_name = "DIR")]
        keys: PathBuf,
        /// Directory for the process's keys
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Make the keys of one process that follows the fleet and has no other key
    Source {
        /// Directory with the control plane's keys
        #[arg(long, value_name = "DIR")]
        keys: PathBuf,
        /// Directory for the process's keys
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// End a gateway that was lost: it gets no more certificates
    EndGateway {
        /// Its name, as `keys status` shows it
        #[arg(value_name = "NAME")]
        name: String,
        /// Which control plane
        #[command(flatten)]
        target: Target,
    },
    /// Make the keys of one gateway
    Gateway {
        /// Directory with the control plane's keys
        #[arg(long, value_name = "DIR")]
        keys: PathBuf,
        /// Directory for the gateway's keys
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Name or address under which nodes reach the gateway
        #[arg(long = "name", value_name = "HOST", required = true)]
        names: Vec<String>,
        /// Replace the gateway's keys that are in the directory
        #[arg(long)]
        force: bool,
    },
}

impl Keys {
    /// Makes them.
    ///
    /// # Errors
    /// When there are keys already, or something cannot be written.
    pub async fn run(&self, clock: &SharedClock) -> Result<Exit, Failure> {
        match &self.verb {
            Verb::Init { keys, trust_domain, dev, database } => {
                init(&KeyDir::at(keys), trust_domain, *dev, database, clock).await?
            }
            Verb::Rotate(rotate) => rotate.run(clock).await?,
            Verb::Status(status) => status.run(clock).await?,
            Verb::Service(service) => service.run(clock)?,
            Verb::Signing { keys, out } => signing(&KeyDir::at(keys), &KeyDir::at(out))?,
            Verb::Source { keys, out } => source(&KeyDir::at(keys), &KeyDir::at(out))?,
            Verb::EndGateway { name, target } => end_gateway(name, target).await?,
            Verb::Gateway { keys, out, names, force } => {
                gateway(&KeyDir::at(keys), &KeyDir::at(out), names, *force, clock)?
            }
        }
        Ok(Exit::Ok)
    }
}

async fn init(
    place: &KeyDir,
    trust_domain: &str,
    dev: bool,
    database: &str,
    clock: &SharedClock,
) -> Result<(), Failure> {
    if place.control_plane()?.is_some() {
        return Err(Failure::failed(format!("{} holds the keys of a control plane already", place.path().display())));
    }
    let config = DbConfig::from_url(database).map_err(|error| Failure::usage(error.to_string()))?;
    migrate::run(&config).await.during("cannot bring the database up to date")?;
    let db = Db::connect(&config).await.during("cannot connect to the database")?;
    if identity::stored(&db).await?.is_some() {
        return Err(Failure::failed("the database belongs to a control plane already")
            .hint("a new control plane gets a database of its own"));
    }
    let identity = identity::create(&db, place, trust_domain, dev, clock.now()).await?;
    output::plain(&format!(
        "made the keys of {} in {}\npin  {}",
        identity.realm.trust_domain,
        place.path().display(),
        identity.keys.anchor(&identity.realm.fleet_id).pin(),
    ))
}

fn control_plane(place: &KeyDir) -> Result<pki::keys::Keys, Failure> {
    place.control_plane()?.ok_or_else(|| {
        Failure::failed(format!("{} holds no keys of a control plane", place.path().display()))
            .hint("--keys says where they are; `better-compute keys init` makes those of a new control plane")
    })
}

/// The keys, where they are, and whom to ask how far the nodes are.
fn open(keys: Option<&Path>, target: &Target) -> Result<(KeyDir, pki::keys::Keys, Client), Failure> {
    let place = match keys {
        Some(dir) => KeyDir::at(dir),
        None => KeyDir::at(data_dir::locate(target.data.as_deref()).join("keys")),
    };
    let keys = control_plane(&place)?;
    let client = Client::new(target)?;
    Ok((place, keys, client))
}

fn signing(place: &KeyDir, out: &KeyDir) -> Result<(), Failure> {
    out.store_signing(&control_plane(place)?.signing())?;
    output::plain(&format!("made the keys of a process that signs in {}", out.path().display()))
}

fn source(place: &KeyDir, out: &KeyDir) -> Result<(), Failure> {
    out.store_source(&control_plane(place)?.source())?;
    output::plain(&format!("made the keys of a process that follows the fleet in {}", out.path().display()))
}

async fn end_gateway(name: &str, target: &Target) -> Result<(), Failure> {
    let input = json!({ "name": name, "idempotencyKey": once() });
    Client::new(target)?.call("keys.endGateway", &input).await?;
    output::plain(&format!("{name} gets no more certificates"))?;
    output::note(
        "Take its database login away, and rotate internal-authority: then what it has opens nothing here. \
         Nodes believe its serving certificate until that ends; rotate node-ca when that is too long.",
    );
    Ok(())
}

fn gateway(place: &KeyDir, out: &KeyDir, hosts: &[String], force: bool, clock: &SharedClock) -> Result<(), Failure> {
    let keys = control_plane(place)?;
    if !force && out.is_in_use() {
        let message = format!("{} is not empty: a gateway may work with the keys in it", out.path().display());
        return Err(
            Failure::failed(message).hint("name another directory, or say --force to replace its gateway's keys")
        );
    }
    let first = hosts.first().map_or("gateway", String::as_str);
    let label: String =
        first.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let issued = keys
        .issue_gateway(label.trim_matches('-'), &names::for_certificate(hosts, &[]), clock.now())
        .during("cannot make the gateway's certificates")?;
    out.store_gateway(&issued)?;
    output::plain(&format!("made the keys of the gateway {} in {}", issued.name, out.path().display()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use schema::{clock::ManualClock, time::Timestamp};

    use super::*;

    #[test]
    fn keys_that_a_gateway_may_work_with_are_replaced_only_when_that_is_said() {
        pki::install_provider();
        let dir = tempfile::tempdir().unwrap();
        let (place, out) = (KeyDir::at(dir.path().join("keys")), KeyDir::at(dir.path().join("gw")));
        place.store_control_plane(&pki::keys::Keys::generate("bc.local", Timestamp::UNIX_EPOCH).unwrap()).unwrap();
        let clock: SharedClock = Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH));
        let make = |force| gateway(&place, &out, &["gw.example.org".to_owned()], force, &clock);
        make(false).unwrap();
        let first = out.gateway().unwrap().name;
        let refused = make(false).unwrap_err();
        assert!(refused.message.contains("is not empty"), "{refused}");
        assert_eq!(out.gateway().unwrap().name, first);
        make(true).unwrap();
        assert_ne!(out.gateway().unwrap().name, first);
    }
}
