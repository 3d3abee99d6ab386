//! `trust init`: a first policy with the people who are there, in a commit that the person signs.

use std::path::{Path, PathBuf};

use clap::Args;
use pki::trust::{key::TrustKey, policy};
use schema::{fleet::trust::FILE, name::Name};
use serde_json::json;

use super::{facts, pin, work_tree};
use crate::{
    args::Sure,
    data_dir,
    exit::{During as _, Exit, Failure},
    output::{self, Output},
    signer::{SigningKey, signing_key},
    statement::{self, git},
    up::keys::KeyDir,
    verified::{Place, Verified, branch_that_is_named},
};

/// Turn an unsigned fleet into a verified one.
///
/// Finds the key that git signs with, writes trust/policy.kdl with you and the people you name, commits it with your signature, pushes it
/// or says how, and pins the control plane whose keys are here. What runs goes on running; from the pin on, only signed commits come
/// into force.
#[derive(Debug, Args)]
pub struct Init {
    /// What the policy calls you [default: the name in your mail address]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Another person, with the file of their public SSH key; an OpenPGP key is written into the policy by hand
    #[arg(long = "person", value_name = "NAME=FILE")]
    pub people: Vec<String>,
    /// Push the branch when the commit is made
    #[arg(long)]
    pub push: bool,
    /// Make the commit, and pin nothing
    #[arg(long)]
    pub no_pin: bool,
    /// Directory with the control plane's keys [default: keys in the data directory, when there are any]
    #[arg(long, value_name = "DIR")]
    pub keys: Option<PathBuf>,
    /// Whether somebody is asked
    #[command(flatten)]
    pub sure: Sure,
    /// Where
    #[command(flatten)]
    pub place: Place,
}

/// Somebody with a key, as the policy lists it.
struct Person {
    name: Name,
    key: String,
}

impl Init {
    pub(super) fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let (repo, folder) = self.place.open()?;
        let branch = self.place.branch_of(&repo);
        let branch = branch_that_is_named(&branch)?;
        if repo.branch().as_deref() != Some(branch) {
            return Err(Failure::usage(format!("check out {branch} first: the policy is committed there")));
        }
        let fleet = work_tree(&self.place.repo, &folder)?;
        let file = fleet.join(FILE);
        if file.exists() {
            return Err(Failure::failed(format!("{} is there already", file.display()))
                .hint("`better-compute trust show` shows it, and `trust pin` pins it"));
        }
        if !["fleet.kdl", "fleet.yaml", "fleet.yml"].iter().any(|root| fleet.join(root).is_file()) {
            return Err(Failure::failed(format!("{} holds no fleet.kdl", fleet.display())).hint("--repo, --path"));
        }
        let people = self.everybody()?;
        let text = policy_text(&people);
        let checked = policy::check(text.as_bytes());
        if checked.policy.is_none() {
            let why: Vec<String> = checked.diagnostics.iter().map(|found| found.message.clone()).collect();
            return Err(Failure::failed(format!("these people make no policy: {}", why.join("; "))));
        }
        if !self.sure.yes && !output.is_json() {
            output.line(format!("{text}\nThis goes into {}, in a commit that you sign.", file.display()))?;
        }
        if !self.sure.ask(output, "Write and commit it?", "nothing was written")? {
            return Ok(Exit::Failed);
        }
        write_and_commit(&file, &text)?;
        let looked = Verified::open(&self.place, None)?;
        if let Some((judged, refusal)) = looked.walked.refused() {
            return Err(Failure::failed(format!("the commit {} does not count: {refusal}", judged.id.short()))
                .hint("git reset --soft HEAD~1 takes it back"));
        }
        let anchor =
            looked.walked.commits.first().map(|judged| judged.id).ok_or_else(|| Failure::failed("no anchor"))?;
        let remote = statement::remote(&fleet);
        let line = format!("git push {} {branch}", remote.as_deref().unwrap_or("origin"));
        if self.push
            && let Some(remote) = &remote
        {
            git(&fleet, &["push", "--quiet", remote, branch]).map_err(|why| {
                Failure::failed(format!("the policy is committed, and cannot be pushed: {why}")).hint(&line)
            })?;
        }
        if output.is_json() {
            output.json(&json!({ "anchor": anchor, "fleet": looked.walked.fleet, "people": people.iter().map(|one| one.name.as_str()).collect::<Vec<_>>() }))?;
        } else {
            let rows = [("anchor", anchor.to_string()), ("fleet", looked.walked.fleet.to_string())];
            output.line(facts(&rows, output))?;
        }
        if !self.push && remote.is_some() {
            output::note(format!("push it: {line}"));
        }
        self.then_pin(&looked, anchor, output)?;
        if people.len() > 1 {
            for line in [
                "One person changes the policy so far, and could make themselves two. Let the next change",
                "be `trust { threshold 2 }`, to which another of you agrees (docs/guides/trust.md).",
            ] {
                output::note(line);
            }
        }
        Ok(Exit::Ok)
    }

    fn then_pin(
        &self,
        looked: &Verified,
        anchor: pki::trust::object::ObjectId,
        output: &Output,
    ) -> Result<(), Failure> {
        let keys = KeyDir::at(self.keys.clone().unwrap_or_else(|| data_dir::usual().join("keys")));
        let later =
            format!("pin it where the control plane's keys are:\n  better-compute trust pin {anchor} --keys DIR");
        if self.no_pin || (self.keys.is_none() && !keys.path().join("secret").exists()) {
            output::note(later);
            return Ok(());
        }
        if !pin::pin(looked, &keys, self.sure, output)? {
            output::note(later);
        }
        Ok(())
    }

    /// Whoever sits here first, then the others.
    fn everybody(&self) -> Result<Vec<Person>, Failure> {
        let dir = &self.place.repo;
        let key = match signing_key(dir)? {
            SigningKey::Ssh { line, .. } => format!("key {}", quoted(&line)),
            SigningKey::OpenPgp { prints, .. } => openpgp(&prints)?,
        };
        let mut people = vec![Person { name: self.own_name(dir)?, key }];
        for text in &self.people {
            let (name, file) = text.split_once('=').ok_or_else(|| Failure::usage("--person is NAME=FILE"))?;
            let name = Name::new(name).map_err(|error| Failure::usage(error.to_string()))?;
            let text = std::fs::read_to_string(file).during(format!("cannot read {file}"))?;
            let line = text.lines().next().unwrap_or_default().trim();
            TrustKey::from_ssh(line).during(format!("the key in {file} is not taken")).map_err(|failure| {
                failure.hint("--person takes a file with one public SSH key, as ~/.ssh/id_ed25519.pub")
            })?;
            people.push(Person { name, key: format!("key {}", quoted(line)) });
        }
        Ok(people)
    }

    fn own_name(&self, dir: &Path) -> Result<Name, Failure> {
        let named = self.name.clone().or_else(|| {
            let mail = statement::config(dir, "user.email")?;
            let local = mail.split('@').next()?.to_ascii_lowercase();
            Some(local.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect())
        });
        let named = named.ok_or_else(|| Failure::usage("say what the policy calls you: --name NAME"))?;
        Name::new(&named).map_err(|error| Failure::usage(error.to_string()).hint("--name NAME"))
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The OpenPGP key that gpg signs with, and its block.
fn openpgp(prints: &[String]) -> Result<String, Failure> {
    let mut refused = String::new();
    for print in prints {
        let exported = std::process::Command::new("gpg").args(["--batch", "--armor", "--export", "--", print]).output();
        let exported = exported.during("cannot ask gpg for the public key")?;
        let block = String::from_utf8_lossy(&exported.stdout).trim().to_owned();
        if let Err(refusal) = TrustKey::from_openpgp(&block, print) {
            refused = format!("{refused}\n  {print}: {refusal}");
            continue;
        }
        let lines: Vec<String> = block.lines().map(|line| format!("        {line}").trim_end().to_owned()).collect();
        return Ok(format!("openpgp \"{print}\" \"\"\"\n{}\n        \"\"\"", lines.join("\n")));
    }
    Err(Failure::failed(format!("no key with which gpg signs here is taken:{refused}")))
}

fn write_and_commit(file: &Path, text: &str) -> Result<(), Failure> {
    let folder = file.parent().expect("the policy lies in a folder");
    std::fs::create_dir_all(folder).during(format!("cannot make {}", folder.display()))?;
    std::fs::write(file, text).during(format!("cannot write {}", file.display()))?;
    let path = file.to_string_lossy();
    let undo = |why: String| {
        let _gone = std::fs::remove_file(file);
        let _rest = std::fs::remove_dir(folder);
        Failure::failed(format!("git does not commit the policy: {why}"))
    };
    git(folder, &["add", "--", &path]).map_err(undo)?;
    git(folder, &["commit", "--quiet", "-S", "-m", "trust: who may change what", "--", &path]).map_err(undo).map(drop)
}

/// A policy for the people who are there: as strict as their number allows.
fn policy_text(people: &[Person]) -> String {
    let mut text = String::from(
        "// Who may change this fleet. docs/guides/trust.md explains every line;\n// `better-compute check` judges it.\n",
    );
    let alone = people.len() < 2;
    text.push_str("policy {\n    format 1\n    epoch 1\n");
    if alone {
        text.push_str("    // One person approves nothing of their own: without a second one, machines\n    // take so many destructive commands in an hour without a batch. Take it out\n    // when there are two.\n");
        text.push_str("    unbatched-destructive-per-hour 10\n");
    }
    text.push_str("}\n\n");
    for Person { name, key } in people {
        text.push_str(&format!("principal \"{name}\" {{\n    kind \"human\"\n    roles \"admin\"\n    {key}\n}}\n"));
    }
    text.push('\n');
    if alone {
        text.push_str("// `changes 0`: nobody else is there to look at what runs as root.\npath \"**\" { roles \"admin\"; changes 0; }\n");
    } else {
        text.push_str("path \"**\" { roles \"admin\"; }\n");
    }
    text.push_str("path \"trust/**\" { roles \"admin\"; }\n\n");
    let two = people.len().min(2);
    if !alone {
        text.push_str("// Whoever changes this file alone can make themselves two people. Make it 2,\n// and let another one agree to that.\n");
    }
    text.push_str("trust { roles \"admin\"; threshold 1; }\n");
    if !alone {
        text.push_str("change { roles \"admin\"; threshold 1; }\n");
    }
    text.push_str(&format!("reseal {{ roles \"admin\"; threshold {two}; }}\nrevoke {{ roles \"admin\"; }}\n"));
    if !alone {
        // Whoever proposes a batch does not approve it.
        let most = (people.len() - 1).min(2);
        text.push_str(&format!(
            "\ntier \"reboot\" {{\n    commands \"node.reboot\" \"gpu.reset\"\n    roles \"admin\"\n    threshold 1\n    max-nodes 100\n    max-ttl \"8h\"\n}}\n\
             tier \"wipe\" {{\n    commands \"node.reimage\" \"disk.wipe\"\n    roles \"admin\"\n    threshold {most}\n    max-nodes 16\n    max-ttl \"4h\"\n}}\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_policy_is_one_that_check_takes() {
        let dir = tempfile::tempdir().unwrap();
        for number in 1..=3 {
            let people: Vec<Person> = (0..number)
                .map(|at| {
                    let file = dir.path().join(format!("{number}-{at}"));
                    let mut make = std::process::Command::new("ssh-keygen");
                    make.args(["-q", "-t", "ed25519", "-N", "", "-C", "a \"quoted\" name", "-f"]).arg(&file);
                    if !make.status().is_ok_and(|status| status.success()) {
                        return None;
                    }
                    let line = std::fs::read_to_string(file.with_extension("pub")).ok()?;
                    Some(Person {
                        name: Name::new(format!("p{at}")).unwrap(),
                        key: format!("key {}", quoted(line.trim())),
                    })
                })
                .collect::<Option<_>>()
                .unwrap_or_default();
            if people.is_empty() {
                output::note("skipped: there is no ssh-keygen");
                return;
            }
            let checked = policy::check(policy_text(&people).as_bytes());
            assert!(checked.policy.is_some(), "{number}: {:?}", checked.diagnostics);
        }
    }
}
