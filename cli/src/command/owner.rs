//! Who answers for what is typed: the person, not the token that carries it.

use std::{fs, io::IsTerminal as _, process::Command};

use clap::Args;

use crate::{client::Client, output::note};

/// Who answers for something.
#[derive(Debug, Clone, Default, Args)]
pub struct Owner {
    /// Who answers for it [default: you, or the name of the token]
    #[arg(long, value_name = "WHO")]
    pub owner: Option<String>,
}

impl Owner {
    /// As named, else the person who typed it. `None` lets the control plane take the token's name: a program with a token of its own has
    /// no person.
    pub(super) fn who(&self, client: &Client) -> Option<String> {
        let typed = client.local.is_some() || std::io::stdin().is_terminal();
        self.owner.clone().or_else(|| typed.then(|| person(git, variable)).flatten())
    }

    /// The same, and a person who was not named is said.
    pub(super) fn said(&self, client: &Client) -> Option<String> {
        let owner = self.who(client)?;
        if self.owner.is_none() {
            note(format!("note: {owner} answers for it; --owner names somebody else"));
        }
        Some(owner)
    }
}

/// The name that git signs with, else that of the account on this host.
fn person(git: impl Fn(&str) -> Option<String>, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    git("user.email").or_else(|| git("user.name")).or_else(|| {
        let user = variable("USER").or_else(|| variable("LOGNAME")).or_else(account)?;
        Some(format!("{user}@{}", host()))
    })
}

fn git(key: &str) -> Option<String> {
    said(Command::new("git").args(["config", "--get", key]))
}

fn account() -> Option<String> {
    said(Command::new("id").arg("-un"))
}

/// What a program says on one line, when it says something.
fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    text(String::from_utf8(output.stdout).ok()?)
}

fn variable(name: &str) -> Option<String> {
    text(std::env::var(name).ok()?)
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok().and_then(text);
    name.unwrap_or_else(|| "localhost".to_owned())
}

fn text(said: String) -> Option<String> {
    let said = said.trim();
    (!said.is_empty()).then(|| said.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_person_answers_and_not_the_token() {
        let nobody = |_: &str| None;
        let ada = |key: &str| (key == "user.email").then(|| "ada@example.com".to_owned());
        assert_eq!(person(ada, nobody).as_deref(), Some("ada@example.com"));
        let bob = |key: &str| (key == "USER").then(|| "bob".to_owned());
        assert_eq!(person(nobody, bob), Some(format!("bob@{}", host())));
        assert!(person(nobody, nobody).is_some_and(|person| person.contains('@')), "an account has a name");
    }
}
