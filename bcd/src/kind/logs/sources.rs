//! What goes into a bundle, and getting it.

use std::{
    io,
    path::{Path, PathBuf},
};

use schema::{
    command::{payload::LogsCollect, result::LogPart},
    time::Timestamp,
    unit::DAEMON,
};
use serde_json::json;

use super::{
    Trouble, doing,
    tail::{Kept, Tail},
};
use crate::{
    command::{Context, Stop},
    kind::Machine,
    process::{Streamed, stream},
};

/// One part of a bundle.
#[derive(Debug)]
pub(super) enum Source {
    /// A text that is here already.
    Text { name: &'static str, text: Vec<u8> },
    /// What the journal's program prints.
    Program { name: &'static str, args: Vec<String>, whole: bool },
    /// What is not there, and why.
    Missing { name: &'static str, why: &'static str },
}

/// A part with the files that hold it.
#[derive(Debug)]
pub(super) struct Collected {
    pub(super) part: LogPart,
    pub(super) pieces: Vec<PathBuf>,
}

/// Files of the state directory that hold nothing secret and nothing of other people's.
const OWN: [(&str, &str); 3] =
    [("bcd/identity.json", "identity.json"), ("bcd/trust.json", "trust.json"), ("bcd/progress.json", "progress.json")];

/// The parts of a bundle, in their order.
pub(super) fn of(machine: &Machine, context: &Context, payload: &LogsCollect) -> Vec<Source> {
    let body = &context.order().body;
    let about = json!({
        "node": body.node_id,
        "command": body.id,
        "at": context.now(),
        "daemon": env!("CARGO_PKG_VERSION"),
        "described": machine.hardware.is_described(),
    });
    let mut sources = vec![Source::Text { name: "bcd/about.json", text: format!("{about:#}\n").into_bytes() }];
    for (name, file) in OWN {
        match machine.state.bytes(file) {
            Ok(Some(text)) => sources.push(Source::Text { name, text }),
            Ok(None) => {}
            Err(_) => sources.push(Source::Missing { name, why: "it cannot be read" }),
        }
    }
    if machine.hardware.is_described() {
        sources.push(Source::Missing { name: "journal.txt", why: "a described machine has no journal" });
        return sources;
    }
    if !machine.live {
        let why = "the daemon's root is a directory: the journal here is another machine's";
        sources.push(Source::Missing { name: "journal.txt", why });
        return sources;
    }
    let since = payload.since.map(|since| since.at(context.now()));
    let program = |name, own: Vec<String>, whole| Source::Program { name, args: arguments(since, own), whole };
    if payload.units.is_empty() {
        sources.push(program("journal.txt", Vec::new(), true));
    } else {
        sources.push(program("bcd.txt", vec![format!("--unit={DAEMON}")], false));
        sources.push(program("kernel.txt", vec!["--dmesg".to_owned()], false));
        let units = payload.units.iter().map(|unit| format!("--unit={unit}"));
        sources.push(program("journal.txt", units.collect(), true));
    }
    sources
}

fn arguments(since: Option<Timestamp>, own: Vec<String>) -> Vec<String> {
    let when = since.map_or_else(|| "--boot".to_owned(), |since| format!("--since=@{}", since.as_second()));
    let fixed = ["--no-pager".to_owned(), "--quiet".to_owned(), "--output=short-iso-precise".to_owned(), when];
    // --dmesg means this boot unless another one is asked for.
    let all_boots = own.iter().any(|arg| arg == "--dmesg") && since.is_some();
    let all_boots = all_boots.then(|| "--boot=all".to_owned());
    fixed.into_iter().chain(all_boots).chain(own).collect()
}

/// Gets one part into a directory, at most so many bytes of it.
pub(super) fn collect(
    machine: &Machine,
    context: &Context,
    source: &Source,
    into: &Path,
    cap: u64,
) -> Result<Collected, Trouble> {
    let (name, kept, problem) = match source {
        Source::Text { name, text } => {
            let mut tail = Tail::new(into, cap);
            tail.take(text).map_err(doing("keeping a part"))?;
            (*name, tail.finish().map_err(doing("keeping a part"))?, None)
        }
        Source::Program { name, args, .. } => {
            let (kept, problem) = print(machine, context, args, into, cap)?;
            (*name, kept, problem)
        }
        Source::Missing { name, why } => (*name, Kept::default(), Some((*why).to_owned())),
    };
    let part = LogPart { name: name.to_owned(), bytes: kept.bytes, left_out: kept.left_out, problem };
    Ok(Collected { part, pieces: kept.pieces })
}

fn print(
    machine: &Machine,
    context: &Context,
    args: &[String],
    into: &Path,
    cap: u64,
) -> Result<(Kept, Option<String>), Trouble> {
    let mut tail = Tail::new(into, cap);
    let mut stop: Option<Stop> = None;
    let mut full: Option<io::Error> = None;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    // The upload wants time, too.
    let deadline = context.remaining() / 2;
    let ended = stream(&machine.programs.journalctl, &args, deadline, |piece| {
        if let Err(error) = context.go_on() {
            stop = Some(error);
        } else if let Err(error) = tail.take(piece) {
            full = Some(error);
        }
        stop.is_none() && full.is_none()
    });
    if let Some(stop) = stop {
        return Err(stop.into());
    }
    if let Some(error) = full {
        return Err(Trouble::Io("keeping a part", error));
    }
    // What came until then is kept: half of a log is better than none.
    let problem = match ended {
        Ok(Streamed::Ended { success: true, .. } | Streamed::Stopped) => None,
        Ok(Streamed::Ended { success: false, stderr }) => Some(said(&stderr)),
        Err(error) => Some(format!("{}: {error}", error.reason())),
    };
    Ok((tail.finish().map_err(doing("keeping a part"))?, problem))
}

fn said(stderr: &str) -> String {
    let line = stderr.lines().map(str::trim).find(|line| !line.is_empty());
    let line = line.unwrap_or("it ended badly and said nothing");
    line.chars().filter(|letter| !letter.is_control()).take(300).collect()
}
