//! `audit`: who did what, and the log as a file that anybody can check without asking anybody.

mod mend;

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Subcommand};
use pki::audit::{Reader, Told, Verified};
use schema::{digest::Digest, time::Timestamp};
use serde_json::{Map, Value, json};

use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::{During as _, Exit, Failure},
    output::{
        Output, Table, new_file, note,
        table::Cell,
        text::{Style, count, printable},
    },
};

const EXAMPLES: &str = "\
Examples:
  better-compute audit                                  the last lines, newest first
  better-compute audit --subject batch/reboot-2026-w49  everything about one batch
  better-compute audit --actor ada --since 2d
  better-compute audit --action commands                how commands ended
  better-compute audit export --out audit.log
  better-compute audit verify audit.log --pin sha256:…
  better-compute audit mend --reason \"a stolen password; OPS-4201\"

`verify` needs no control plane: the file proves itself, and --pin says whose it has to be.";

/// The longest that an export waits for what was just written.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many lines are asked for at a time.
const PAGE: u32 = 500;
/// The longest line that is looked at.
const LONGEST: u64 = 4 << 20;

/// See who did what, and prove it.
///
/// Lists the audit log, newest first. `export` writes the whole log into one file, chained and signed; `verify` checks such a
/// file by itself and says where it is broken. `mend` goes on where somebody wrote into the log's chain.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Audit {
    /// What to do; a list when nothing is said
    #[command(subcommand)]
    pub verb: Option<Verb>,
    /// Only about this: node/NAME or a node's id, batch/NAME, policy/EPOCH, a command's id
    #[arg(long, value_name = "SUBJECT", alias = "object")]
    pub subject: Option<String>,
    /// Only by this: a person of the trust policy, a token's name, source, a machine's id
    #[arg(long, value_name = "WHO")]
    pub actor: Option<String>,
    /// Only this: nodes.cordon, or nodes for all of them
    #[arg(long, value_name = "ACTION")]
    pub action: Option<String>,
    /// Not before: 30m, 12h, 7d, or a time
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Write the whole log into a file that proves itself
    Export {
        /// The file; it must not exist
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Which control plane
        #[command(flatten)]
        target: Target,
    },
    /// Check such a file, without a control plane
    Verify {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The pin of the control plane that it has to be of, as `token create` shows it
        #[arg(long, value_name = "sha256:…")]
        pin: Option<Digest>,
        /// The id of the fleet that it has to be of
        #[arg(long, value_name = "ID")]
        fleet: Option<String>,
        /// How results are written
        #[command(flatten)]
        format: FormatArg,
    },
    /// Go on where somebody wrote into the chain: set that aside, name it in the log, chain the rest anew
    Mend(mend::Mend),
}

impl Audit {
    /// How results are written.
    #[must_use]
    pub fn format(&self) -> &FormatArg {
        match &self.verb {
            Some(Verb::Verify { format, .. }) => format,
            Some(Verb::Mend(mend)) => &mend.format,
            Some(Verb::Export { .. }) | None => &self.format,
        }
    }

    /// Does it.
    ///
    /// # Errors
    /// When a call fails, or a file is not what it should be.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        match &self.verb {
            None => self.list(output).await?,
            Some(Verb::Export { out, target }) => export(&Client::new(target)?, out, output).await?,
            Some(Verb::Verify { file, pin, fleet, .. }) => {
                verify(file, Told { pin: *pin, fleet: fleet.clone() }, output)?;
            }
            Some(Verb::Mend(mend)) => mend.run(output).await?,
        }
        Ok(Exit::Ok)
    }

    async fn list(&self, output: &Output) -> Result<(), Failure> {
        let client = Client::new(&self.target)?;
        let mut filter = Map::new();
        for (key, value) in [
            ("subject", self.subject.clone()),
            ("actor", self.actor.clone()),
            ("action", self.action.clone()),
            ("since", self.since.as_deref().map(|text| since(text, output)).transpose()?),
        ] {
            filter.extend(value.map(|value| (key.to_owned(), value.into())));
        }
        let (wanted, mut lines) = (self.limit as usize, Vec::new());
        loop {
            filter.insert("limit".to_owned(), PAGE.min(self.limit).into());
            let mut page = client.call("audit.list", &Value::Object(filter.clone())).await?;
            if let Some(Value::Array(more)) = page.get_mut("items").map(Value::take) {
                lines.extend(more);
            }
            match page["next"].as_str() {
                Some(next) if lines.len() < wanted => filter.insert("before".to_owned(), next.into()),
                _ => break,
            };
        }
        lines.truncate(wanted);
        if output.is_json() {
            return output.json(&json!({ "lines": lines }));
        }
        output.table(&table(&lines, output), "no such line in the audit log")
    }
}

/// A time, or how long ago it was.
fn since(text: &str, output: &Output) -> Result<String, Failure> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at.to_string());
    }
    let ago: schema::time::Duration = text.parse().map_err(|_| {
        Failure::usage(format!("--since takes 30m, 12h, 7d or a time like 2026-11-29T12:00:00Z, not {text:?}"))
    })?;
    let at = output.now().saturating_sub(ago.to_std());
    Ok(at.map_or(Timestamp::UNIX_EPOCH, |at| at).to_string())
}

fn table(lines: &[Value], output: &Output) -> Table {
    let mut table = Table::new(&["when", "who", "did", "to", "detail"]).whole(&["did", "to"]).words();
    for line in lines {
        let text = |key: &str| line[key].as_str().unwrap_or_default();
        let when = text("at").parse().map_or_else(|_| text("at").to_owned(), |at| output.ago(at));
        let aside = line["aside"].as_bool() == Some(true);
        let bad =
            ["Refused", "rejected", "failed", "void", "audit.mend"].iter().any(|word| text("action").contains(word));
        let action = if aside { format!("{} (set aside)", text("action")) } else { text("action").to_owned() };
        let action = Cell::from(action).style(if bad || aside { Style::Bad } else { Style::Plain });
        let who = who(text("actor"), &line["detail"]);
        table.row([when.into(), who.into(), action, text("subject").into(), detail(&line["detail"]).into()]);
    }
    table
}

/// Who did it, and on whose signed words.
pub(super) fn who(actor: &str, detail: &Value) -> String {
    let people = detail["people"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let people: Vec<&str> = people.filter(|person| !actor.split(", ").any(|named| named == *person)).collect();
    if people.is_empty() { actor.to_owned() } else { format!("{actor} ({})", people.join(", ")) }
}

/// What a line says beside who, what and whom, as `key value` pairs; what is long or nested is left to JSON.
fn detail(detail: &Value) -> String {
    let Value::Object(members) = detail else { return String::new() };
    let short = |(key, value): (&String, &Value)| {
        let value = match value {
            Value::String(text) if !text.is_empty() && text.len() <= 80 => text.clone(),
            Value::Number(_) | Value::Bool(true) => value.to_string(),
            _ => return None,
        };
        (key != "idempotencyKey").then(|| format!("{key} {value}"))
    };
    members.iter().filter_map(short).collect::<Vec<_>>().join(", ")
}

/// Waits until what was there when it began is signed. Answers how many lines are not, and why when that does not pass.
async fn signed(client: &Client) -> Result<(u64, Option<String>), Failure> {
    let until = tokio::time::Instant::now() + PATIENCE;
    let mut wanted = None;
    loop {
        let standing = client.call("audit.status", &json!({})).await?;
        let number = |key: &str| standing[key].as_u64().unwrap_or_default();
        let wanted = *wanted.get_or_insert_with(|| number("chained") + number("tail"));
        let left = wanted.saturating_sub(number("signed"));
        let stopped = standing["altered"].as_str().map(printable);
        if left == 0 || stopped.is_some() || tokio::time::Instant::now() >= until {
            return Ok((left, stopped));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn export(client: &Client, out: &Path, output: &Output) -> Result<(), Failure> {
    let (left, stopped) = signed(client).await?;
    let file = new_file(out, 0o666)?;
    let written = write(client, file, out).await;
    if written.is_err() {
        // Half a file is none, and the next try may have its name.
        std::fs::remove_file(out).ok();
    }
    let (lines, last) = written?;
    let altered = &last["altered"];
    output.line(format!("{}: {} of the audit log", out.display(), count(lines, "line")))?;
    match &stopped {
        Some(why) => note(format!("not in the file: {}; {why}", count(left, "line"))),
        None if left > 0 => {
            note(format!("not in the file: {}, written just now and not signed yet", count(left, "line")));
        }
        None => {}
    }
    if let Some(outside) = beside(&last["outside"]) {
        note(outside);
    }
    if let (Some(pos), Some(id)) = (altered["pos"].as_u64(), altered["id"].as_str()) {
        let what = format!("line {pos} of the audit log ({}) is not what was signed", printable(id));
        return Err(Failure::failed(format!("{what}: somebody changed it in the database")).hint(
            "`audit verify` refuses the file at it; an export from before shows what stood there, and a backup puts it back",
        ));
    }
    note(format!("check it: better-compute audit verify {} --pin PIN", out.display()));
    Ok(())
}

/// What is said of lines that are in no chain.
fn beside(outside: &Value) -> Option<String> {
    let number = outside["count"].as_u64().filter(|number| *number > 0)?;
    let ids: Vec<String> = outside["ids"].as_array()?.iter().filter_map(Value::as_str).map(printable).collect();
    let more = if (ids.len() as u64) < number { ", …" } else { "" };
    Some(format!(
        "BREAK: {} of the database in no chain, written while somebody had the log's triggers switched off, and not in the file: {}{more}; \
         `better-compute why audit-outside` says more",
        if number == 1 { "1 line is".to_owned() } else { format!("{number} lines are") },
        ids.join(", "),
    ))
}

/// Writes all parts; answers how many lines there are, and the last part with the first line of all that is not what was signed.
async fn write(client: &Client, mut file: File, out: &Path) -> Result<(u64, Value), Failure> {
    let what = format!("cannot write {}", out.display());
    let (mut from, mut lines, mut altered) = (Value::Null, 0_u64, Value::Null);
    loop {
        let part = client.call("audit.export", &json!({ "from": from })).await?;
        if altered.is_null() {
            altered = part["altered"].clone();
        }
        let text = part["text"].as_str().unwrap_or_default();
        lines += text.lines().filter(|line| line.starts_with("row ")).count() as u64;
        file.write_all(text.as_bytes()).during(&what)?;
        from = part["next"].clone();
        if from.is_null() {
            file.sync_all().during(&what)?;
            return Ok((lines, json!({ "altered": altered, "outside": part["outside"] })));
        }
    }
}

/// Reads and checks a file.
fn check(file: &Path, told: Told) -> Result<Verified, Failure> {
    let what = format!("cannot read {}", file.display());
    let mut input = BufReader::new(File::open(file).during(&what)?);
    let mut reader = Reader::new(told);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = std::io::Read::take(&mut input, LONGEST).read_until(b'\n', &mut line).during(&what)?;
        if read == 0 {
            break;
        }
        // A line that nothing ends was cut off, and says so as what it lacks.
        let whole = line.strip_suffix(b"\n").and_then(|line| std::str::from_utf8(line).ok()).unwrap_or("");
        reader.line(whole).map_err(|broken| broken_at(file, &broken))?;
    }
    reader.finish().map_err(|broken| broken_at(file, &broken))
}

fn broken_at(file: &Path, broken: &pki::audit::Broken) -> Failure {
    Failure::because(format!("{} is not what the control plane signed", file.display()), broken)
}

fn verify(file: &Path, told: Told, output: &Output) -> Result<(), Failure> {
    let compared = told.pin.is_some();
    let found = check(file, told)?;
    if output.is_json() {
        return output.json(&json!({
            "verified": true, "rows": found.rows, "checkpoints": found.checkpoints, "pin": found.pin, "pinTold": compared,
            "trustDomain": found.realm.trust_domain, "fleet": found.realm.fleet_id, "key": found.key,
            "first": found.first, "last": found.last, "exportedAt": found.exported_at,
            "mended": found.mended, "outside": found.outside,
        }));
    }
    output.line(page(&found))?;
    for row in &found.mended {
        note(mend::told(&row.detail, &format!("{} by {}", row.at, printable(&row.actor))));
    }
    if let Some(outside) = beside(&json!(found.outside)) {
        note(outside);
    }
    if !compared {
        note("Whose log this is, only the pin says: compare it with the one that you know, or pass that as --pin.");
    }
    Ok(())
}

/// What a file proves. Whose it is said the file alone.
fn page(found: &Verified) -> String {
    let moment = |at: Option<Timestamp>| at.map_or_else(|| "-".to_owned(), |at| at.to_string());
    format!(
        "every line {}is there, in its order and unchanged\n\
         lines        {} ({} … {})\n\
         checkpoints  {}, signed by {}\n\
         exported     {}; what was written later is not in the file\n\
         fleet        {} of {}\n\
         pin          {}",
        if found.mended.is_empty() { "" } else { "that was not set aside " },
        found.rows,
        moment(found.first),
        moment(found.last),
        found.checkpoints,
        found.key,
        found.exported_at,
        printable(&found.realm.fleet_id),
        printable(&found.realm.trust_domain),
        found.pin,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_no_chain_are_named() {
        assert_eq!(beside(&Value::Null), None);
        let said = beside(&json!({ "count": 3, "ids": ["audit_1", "audit_2"] })).unwrap();
        assert!(said.starts_with("BREAK: 3 lines are") && said.contains("audit_1, audit_2, …"), "{said}");
    }

    #[test]
    fn a_detail_is_what_people_read() {
        let line = json!({ "reason": "fan", "counts": { "a": 1 }, "count": 3, "idempotencyKey": "x", "off": false, "no": null });
        assert_eq!(detail(&line), "reason fan, count 3");
    }

    #[test]
    fn people_stand_beside_whoever_acted_on_their_word() {
        assert_eq!(who("batch", &json!({ "people": ["ada", "bob"] })), "batch (ada, bob)");
        assert_eq!(who("ada, bob", &json!({ "people": ["ada", "bob"] })), "ada, bob");
        assert_eq!(who("ci", &Value::Null), "ci");
    }

    #[test]
    fn a_file_that_is_none_is_refused_at_its_first_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("audit.log");
        std::fs::write(&file, "hello\n").unwrap();
        let failure = check(&file, Told::default()).unwrap_err();
        assert!(failure.message.contains("line 1: this is no audit export"), "{}", failure.message);
        std::fs::write(&file, "better-compute audit export 1\n").unwrap();
        let failure = check(&file, Told::default()).unwrap_err();
        assert!(failure.message.contains("line 2: the file ends before its end"), "{}", failure.message);
    }

    #[test]
    fn whose_a_file_says_to_be_steers_no_terminal() {
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        let keys = pki::keys::Keys::generate("acme.example", now).unwrap();
        let found = Verified {
            realm: pki::Realm::new("acme\u{1b}[2J.example", "fleet\u{202e}\nevery line is there"),
            pin: Digest::of("pin"),
            rows: 1,
            checkpoints: 1,
            key: keys.audit_signer("fleet").key(),
            first: Some(now),
            last: Some(now),
            exported_at: now,
            mended: Vec::new(),
            outside: None,
        };
        let text = page(&found);
        assert!(!text.contains(schema::letter::hidden), "{text:?}");
        assert!(text.contains("\nfleet        fleet  every line is there of acme [2J.example\npin "), "{text}");
    }
}
