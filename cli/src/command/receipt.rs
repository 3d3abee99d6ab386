//! `receipt`: what became of a batch, in one file that anybody can check without asking anybody.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
};

use clap::Args;
use pki::{
    audit::Told,
    receipt::{self, Proven},
};
use schema::{digest::Digest, name::Name};
use serde_json::{Value, json};

use super::audit;
use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::{During as _, Exit, Failure},
    output::{
        Output, Table, new_file, note, plain,
        text::{count, printable},
    },
};

/// The largest receipt that is read: one of as many machines as a batch has is a tenth of it.
const MOST_BYTES: u64 = 1 << 30;

const EXAMPLES: &str = "\
Examples:
  better-compute receipt batch/reboot-2026-w49 --out reboot.receipt
  better-compute receipt --verify reboot.receipt --pin sha256:…

The file holds the document, the commit that asked for it, the approvals or the emergency as people signed them, revoked keys, the
leaves of the batch, the commands, what each machine signed, and the lines of the audit log. `--verify` checks all of it and needs no control plane.";

/// Get or check the receipt of a batch.
///
/// Writes what became of a batch into one file: what was to be done, who agreed, what was sent, what each machine signed, and
/// what the audit log says. With --verify it checks such a file by itself.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Receipt {
    /// The batch
    #[arg(value_name = "batch/NAME", required_unless_present = "verify", conflicts_with = "verify")]
    pub batch: Option<String>,
    /// Write the receipt to this file, which must not exist [default: standard output]
    #[arg(long, value_name = "FILE", conflicts_with = "verify")]
    pub out: Option<PathBuf>,
    /// Check this file instead
    #[arg(long, value_name = "FILE")]
    pub verify: Option<PathBuf>,
    /// The pin of the control plane that it has to be of, as `token create` shows it
    #[arg(long, value_name = "sha256:…", requires = "verify")]
    pub pin: Option<Digest>,
    /// The id of the fleet that it has to be of
    #[arg(long, value_name = "ID", requires = "verify")]
    pub fleet: Option<String>,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

impl Receipt {
    /// Does it.
    ///
    /// # Errors
    /// When the call fails, or the file is not what it should be.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        match (&self.verify, &self.batch) {
            (Some(file), _) => self.check(file, output)?,
            (None, Some(batch)) => self.get(batch, output).await?,
            (None, None) => return Err(Failure::usage("a batch, or --verify FILE")),
        }
        Ok(Exit::Ok)
    }

    async fn get(&self, batch: &str, output: &Output) -> Result<(), Failure> {
        let answer = Client::new(&self.target)?.call("audit.receipt", &json!({ "batch": batch })).await?;
        let text = answer["text"].as_str().unwrap_or_default();
        if let Some(unsigned) = answer["unsigned"].as_u64().filter(|unsigned| *unsigned > 0) {
            note(format!(
                "not signed yet, and not in it: {} of the audit log about it; ask again in some seconds",
                count(unsigned, "line")
            ));
        }
        if let Some(altered) = answer["altered"].as_u64().filter(|altered| *altered > 0) {
            note(format!(
                "changed in the database since it was signed, and not in it: {} of the audit log about it; better-compute audit export names the first",
                count(altered, "line")
            ));
        }
        match &self.out {
            None => plain(text.trim_end()),
            Some(out) => {
                let what = format!("cannot write {}", out.display());
                let mut file = new_file(out, 0o666)?;
                file.write_all(text.as_bytes()).during(&what)?;
                output.line(format!("the receipt of {batch} is in {}", out.display()))?;
                note(format!("check it: better-compute receipt --verify {} --pin PIN", out.display()));
                Ok(())
            }
        }
    }

    fn check(&self, file: &Path, output: &Output) -> Result<(), Failure> {
        let bytes = read(file, MOST_BYTES)?;
        let told = Told { pin: self.pin, fleet: self.fleet.clone() };
        let proven = receipt::verify(&bytes, &told)
            .map_err(|void| Failure::because(format!("{} proves nothing", file.display()), &void))?;
        if output.is_json() {
            return output.json(&as_json(&proven, self.pin.is_some()));
        }
        show(&proven, output)?;
        if self.pin.is_none() {
            note(
                "Whose receipt this is, only the pin says: compare it with the one that you know, or pass that as --pin.",
            );
        }
        Ok(())
    }
}

/// Reads a file that may be anything.
fn read(file: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let what = format!("cannot read {}", file.display());
    let mut bytes = Vec::new();
    File::open(file).during(&what)?.take(most + 1).read_to_end(&mut bytes).during(&what)?;
    if bytes.len() as u64 > most {
        return Err(Failure::failed(format!("{} has more than {most} bytes, and no receipt has", file.display())));
    }
    Ok(bytes)
}

fn as_json(proven: &Proven, told: bool) -> Value {
    let done = |done: &receipt::Done| json!({ "node": done.node, "kind": done.kind, "sent": done.sent, "said": done.said, "state": done.state });
    json!({
        "verified": true, "batch": proven.batch, "pin": proven.pin, "pinTold": told,
        "trustDomain": proven.realm.trust_domain, "fleet": proven.realm.fleet_id,
        "digest": proven.header.as_ref().map(pki::batch::BatchHeader::digest),
        "planCommit": proven.header.as_ref().map(|header| header.plan_commit.to_string()),
        "askedBy": proven.asked_by, "approvedBy": proven.approved_by,
        "emergency": proven.emergency.as_ref().map(|emergency| json!({
            "people": emergency.people, "reason": emergency.reason, "notBefore": emergency.not_before, "expires": emergency.expires,
        })),
        "revoked": proven.revoked.iter().map(|gone| json!({
            "key": gone.key, "holder": gone.holder, "by": gone.by, "before": gone.before,
        })).collect::<Vec<_>>(),
        "nodes": proven.done.iter().map(done).collect::<Vec<_>>(),
        "audit": proven.lines,
    })
}

/// Whose it is, what was to be done, and who agreed. All of it the file alone says.
fn head(proven: &Proven) -> String {
    let batch = printable(&proven.batch);
    let mut head = format!("everything in it is signed and fits together\nbatch     batch/{batch}\n");
    let list = |names: &std::collections::BTreeSet<Name>| {
        let names: Vec<&str> = names.iter().map(Name::as_str).collect();
        if names.is_empty() { "nobody".to_owned() } else { names.join(", ") }
    };
    match (&proven.header, &proven.emergency) {
        (Some(header), _) => {
            let asked = proven.asked_by.as_ref().map_or_else(String::new, |name| format!(", signed by {name}"));
            head.push_str(&format!(
                "tier      {}: {}\nplan      commit {}{asked}\ndigest    {}\napproved  by {}\n",
                header.tier,
                printable(&header.reason),
                header.plan_commit,
                header.digest(),
                list(&proven.approved_by),
            ));
        }
        (None, Some(emergency)) => head.push_str(&format!(
            "emergency called by {} until {}: {}\n",
            list(&emergency.people),
            emergency.expires,
            printable(&emergency.reason)
        )),
        (None, None) => head.push_str("approved  it holds no approvals: nobody was asked\n"),
    }
    for gone in &proven.revoked {
        let when = if gone.before { "before it was decided: it did not count" } else { "after it was decided" };
        head.push_str(&format!("revoked   {} of {} by {}, {when}\n", printable(&gone.key), gone.holder, gone.by));
    }
    let (fleet, domain) = (printable(&proven.realm.fleet_id), printable(&proven.realm.trust_domain));
    head.push_str(&format!("fleet     {fleet} of {domain}\npin       {}", proven.pin));
    head
}

fn show(proven: &Proven, output: &Output) -> Result<(), Failure> {
    output.line(head(proven))?;
    let mut machines = Table::new(&["machine", "command", "sent", "it signed"]).whole(&["machine"]);
    for done in &proven.done {
        let said = done.said.clone().unwrap_or_else(|| format!("nothing ({} says the database)", done.state));
        machines.row([
            done.node.as_str().into(),
            done.kind.as_deref().unwrap_or("-").into(),
            if done.sent { "yes" } else { "no" }.into(),
            said.into(),
        ]);
    }
    output.line("")?;
    output.table(&machines, "no machines")?;
    let mut lines = Table::new(&["at", "who", "did", "to"]).whole(&["at", "did"]);
    for line in &proven.lines {
        lines.row([
            line.at.to_string().into(),
            audit::who(&line.actor, &line.detail).into(),
            line.action.as_str().into(),
            line.subject.as_str().into(),
        ]);
    }
    output.line("")?;
    output.table(&lines, "the audit log says nothing about it yet")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_read_up_to_a_bound() {
        let refused = read(Path::new("/dev/zero"), 1 << 20).expect_err("it has no end");
        assert!(refused.to_string().contains("has more than 1048576 bytes"), "{refused}");
        assert_eq!(read(Path::new("/dev/null"), 1 << 20).expect("it is empty"), Vec::<u8>::new());
    }

    #[test]
    fn whose_a_receipt_says_to_be_steers_no_terminal() {
        let proven = Proven {
            realm: pki::Realm::new("acme\u{1b}[2J.example", "fleet\u{202e}\npin       sha256:00"),
            pin: Digest::of("pin"),
            batch: "b\u{9b}1m".to_owned(),
            header: None,
            asked_by: None,
            approved_by: std::collections::BTreeSet::new(),
            emergency: None,
            revoked: Vec::new(),
            done: Vec::new(),
            lines: Vec::new(),
        };
        let text = head(&proven);
        assert!(!text.contains(schema::letter::hidden), "{text:?}");
        assert_eq!(text.lines().filter(|line| line.starts_with("pin ")).count(), 1, "{text}");
    }
}
