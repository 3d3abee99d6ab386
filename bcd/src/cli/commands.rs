//! What the journal of commands holds, for people.

use std::fmt::Write as _;

use schema::id::JournalId;
use serde::Serialize;

use crate::{
    command::journal::{Entry, Journal, JournalError},
    state::StateDir,
};

/// What `bcd commands` shows, newest first.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Commands {
    pub(super) journal_id: JournalId,
    pub(super) commands: Vec<Entry>,
}

impl Commands {
    /// What the journal of a state directory holds; `None` when there is none yet.
    pub(super) fn look(state: &StateDir) -> Result<Option<Self>, JournalError> {
        let Some((journal_id, mut commands)) = Journal::look(state)? else { return Ok(None) };
        commands.sort_by_key(|entry| std::cmp::Reverse((entry.at, entry.seq)));
        Ok(Some(Self { journal_id, commands }))
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |words: String| writeln!(text, "{words}").expect("a string takes text");
        if self.commands.is_empty() {
            line("no command has come yet".to_owned());
        }
        for entry in &self.commands {
            line(words(entry));
            if let Some(permitted) = &entry.permitted {
                line(format!("    {}", permitted.words()));
            }
            for effect in entry.effects() {
                line(format!("    {}  {}", effect.at.strftime("%Y-%m-%d %H:%M:%SZ"), effect.name));
            }
        }
        text
    }
}

/// One command in one line.
pub(super) fn words(entry: &Entry) -> String {
    let stands = match (&entry.ended, entry.runs.len()) {
        (Some(ended), _) => match &ended.reason {
            Some(reason) => format!("{}: {reason}", ended.state),
            None => ended.state.to_string(),
        },
        (None, 0) => "accepted".to_owned(),
        (None, _) => "began".to_owned(),
    };
    let again = if entry.runs.len() > 1 { format!(", ran {} times", entry.runs.len()) } else { String::new() };
    format!("{}  {}  {:<18} {stands}{again}", entry.at.strftime("%Y-%m-%d %H:%M:%SZ"), entry.id, entry.kind)
}
