//! `keys service`: from no key to a control plane that proposes batches. Each run takes the step that is next: the key is made, the
//! policy is told how to name it, and the key is proven once the policy does.

use std::path::PathBuf;

use clap::Args;
use pki::trust::{
    policy::Policy,
    service::{ServiceKey, ServiceKeys, Unsigned},
    statement::{Body, Statement, Step},
    walk::Refusal,
};
use reconciler::batch::proposal;
use schema::{clock::SharedClock, digest::Digest, fleet::trust::PrincipalKind, name::Name};
use serde_json::json;

use super::control_plane;
use crate::{
    args::FormatArg,
    data_dir,
    exit::{During as _, Failure},
    output::{Output, note},
    statement,
    up::keys::KeyDir,
    verified::{Place, Verified},
};

const EXAMPLES: &str = "\
Examples:
  better-compute keys service --repo ~/fleet       in a clone of the fleet repository
  better-compute keys service --repo ~/fleet       again, after each step that it names
  better-compute keys service --another            a key to take the place of the present one

A service proposes and never approves: whoever has this key asks people, and commands no machine.
docs/guides/approvals.md has the whole way.";

/// Make the key that proposals of batches are signed with, and take it to the trust policy.
///
/// Where people approve batches, `commandBatches.create` becomes a commit that the control plane signs as a service. The first run makes
/// the key and prints what names it in trust/policy.kdl; once that change is committed, the next run proves the key; and once the policy
/// is in force it says so.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Service {
    /// Directory with the control plane's keys [default: keys in the data directory]
    #[arg(long, value_name = "DIR")]
    pub keys: Option<PathBuf>,
    /// What the policy calls the control plane
    #[arg(long, value_name = "NAME", default_value = "control-plane")]
    pub name: Name,
    /// Make another key; the present one signs until the policy names the other
    #[arg(long)]
    pub another: bool,
    /// Prove the key, and push nothing
    #[arg(long)]
    pub no_push: bool,
    /// Where
    #[command(flatten)]
    pub place: Place,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
}

/// Where the key is with the policy.
enum Stand {
    /// The policy in force lets it propose.
    Ready(Name),
    /// The policy in force names it, and no path rule lets it propose.
    NoPath(Name),
    /// A change that waits names it, and it proves itself.
    Proves(Name, Step, Box<Policy>),
    /// Nothing names it.
    Unnamed,
}

impl Service {
    /// Takes the next step.
    ///
    /// # Errors
    /// When the keys are not there, or the step cannot be taken.
    pub fn run(&self, clock: &SharedClock) -> Result<(), Failure> {
        let output = Output::detect(self.format.format, clock.now());
        let dir = KeyDir::at(self.keys.clone().unwrap_or_else(|| data_dir::usual().join("keys")));
        let made = self.make(&dir)?;
        let keys = control_plane(&dir)?;
        let key = newest(keys.service())?;
        let name = key.public().name();
        if !output.is_json() {
            output.line(format!(
                "{} {name}\n  {}",
                if made { "made the service key" } else { "service key" },
                key.line()
            ))?;
        }
        let looked = Verified::open(&self.place, None);
        let stand = looked.as_ref().map_or(Stand::Unnamed, |looked| stand(looked, &key));
        let (state, said) = match (&stand, &looked) {
            (Stand::Ready(who), _) => {
                ("ready", format!("the trust policy lets {who} propose batches: commandBatches.create works"))
            }
            (Stand::NoPath(who), Ok(looked)) => {
                let rule = path_rule(looked.walked.policy.as_ref());
                (
                    "path-missing",
                    format!(
                        "the trust policy names it as {who}, and lets it propose nothing. Next: a change of trust/policy.kdl with\n\n{rule}"
                    ),
                )
            }
            (Stand::Proves(who, step, policy), Ok(looked)) => {
                ("proven", self.prove(looked, &key, (who, *step, policy.as_ref()), clock)?)
            }
            (_, Ok(looked)) => ("unnamed", self.next(looked.walked.policy.as_ref(), &key)),
            (_, Err(why)) => {
                note(format!(
                    "there is no verified history here: {}. Run it with --repo in a clone of the fleet repository",
                    why.message
                ));
                ("unnamed", self.next(None, &key))
            }
        };
        if output.is_json() {
            return output
                .json(&json!({ "key": name, "public": key.line(), "made": made, "state": state, "next": said }));
        }
        output.line(said)
    }

    /// Makes a key where there is none, or another one.
    fn make(&self, dir: &KeyDir) -> Result<bool, Failure> {
        let held = dir.control_plane()?.map(|keys| keys.service().is_empty());
        if held == Some(false) && !self.another {
            return Ok(false);
        }
        control_plane(dir)?;
        let _held = dir.hold()?;
        let mut keys = control_plane(dir)?;
        keys.add_service_key();
        dir.store_control_plane(&keys)?;
        Ok(true)
    }

    /// What names it, under the policy in force.
    fn next(&self, policy: Option<&Policy>, key: &ServiceKey) -> String {
        let principal = format!(
            "principal \"{}\" {{\n    kind \"service\"\n    roles \"proposer\"\n    key \"{}\"\n}}\n{}",
            self.name,
            key.line(),
            path_rule(policy)
        );
        let Some(policy) = policy else { return format!("Next: name it in trust/policy.kdl\n\n{principal}") };
        let known = policy.principals().get(&self.name).is_some_and(|holder| holder.kind == PrincipalKind::Service);
        let lines = if known {
            format!(
                "its key in principal \"{}\", beside the one that is there:\n\n    key \"{}\"\n",
                self.name,
                key.line()
            )
        } else {
            format!("\n\n{principal}")
        };
        format!(
            "Next: in trust/policy.kdl say `epoch {}`, `prev \"{}\"` and {lines}\nCommit it alone, signed; let people agree (better-compute trust agree); then run this again, which proves the key.",
            policy.epoch() + 1,
            policy.digest()
        )
    }

    /// Says that the control plane holds the key, in the words in which a policy asks for it.
    fn prove(
        &self,
        looked: &Verified,
        key: &ServiceKey,
        (who, step, policy): (&Name, Step, &Policy),
        clock: &SharedClock,
    ) -> Result<String, Failure> {
        let (domain, fleet) = (&looked.walked.trust_domain, looked.walked.fleet);
        let proof = Digest::of(format!("{} {}", step.next, key.public().name()));
        let nonce = proof.as_bytes()[..16].try_into().expect("a digest has 32 bytes");
        let said =
            Statement::new(domain, fleet, who.clone(), nonce, Body::Possess(step)).during("this cannot be said")?;
        let tree = statement::empty_tree(&looked.dir)?;
        let message = said.write(&format!("{who} holds its key"));
        let by = format!("{who} <{who}@{domain}>");
        let unsigned = Unsigned { tree, parent: looked.tip, by: &by, at: clock.now(), message: &message };
        let raw = key.commit(&unsigned).during("the key cannot prove itself")?;
        let made = statement::put(&looked.dir, &raw)?;
        let place = (looked.tip, tree);
        let written = statement::keep_and_push(&looked.dir, place, (&made, &raw), &said, policy, !self.no_push)?;
        let proved = format!("proved the key to the policy of epoch {}", step.epoch);
        Ok(match written.pushed_to() {
            Some(remote) => format!("{proved}: pushed to {remote} as {}", written.reference),
            None => format!(
                "{proved}: it lies in this repository as {}; where the control plane follows a remote, push it:\n  {}",
                written.reference,
                written.push_line()
            ),
        })
    }
}

fn newest(keys: &ServiceKeys) -> Result<ServiceKey, Failure> {
    keys.iter().next().ok_or_else(|| Failure::failed("there is no service key"))
}

fn stand(looked: &Verified, key: &ServiceKey) -> Stand {
    let public = key.public();
    let service = |policy: &Policy| {
        let (name, holder) = policy.holder(&public)?;
        (holder.kind == PrincipalKind::Service).then(|| (name.clone(), policy.lets_propose(holder, &somewhere())))
    };
    match looked.walked.policy.as_ref().and_then(service) {
        Some((name, true)) => return Stand::Ready(name),
        Some((name, false)) => return Stand::NoPath(name),
        None => {}
    }
    let waits = looked.walked.refused().and_then(|(judged, refusal)| match refusal {
        Refusal::TrustThreshold { step, .. } | Refusal::NotProven { step, .. } => Some((judged, *step)),
        _ => None,
    });
    let next = waits.and_then(|(judged, step)| {
        let policy = looked.policy_in(judged).ok()?;
        let (name, _) = service(&policy)?;
        Some(Stand::Proves(name, step, Box::new(policy)))
    });
    next.unwrap_or(Stand::Unnamed)
}

/// A file that asks for a batch.
fn somewhere() -> String {
    proposal::path(&Name::new("any").expect("a name"))
}

/// The rule that lets a service propose, with whoever may change such files as it is.
fn path_rule(policy: Option<&Policy>) -> String {
    let any = somewhere();
    let rule = |pattern: &str| policy?.rules_of(&any).find(|rule| rule.pattern == pattern);
    let present = rule("batches/**").or_else(|| rule("**"));
    let roles = present.map_or_else(|| vec!["admin"], |rule| rule.roles.iter().map(Name::as_str).collect());
    let roles: Vec<String> = roles.into_iter().chain(["proposer"]).map(|role| format!("\"{role}\"")).collect();
    format!("path \"batches/**\" {{ roles {}; }}\n", roles.join(" "))
}
