//! The command line: every verb, in the order in which a person meets them.

use std::ffi::OsString;

use clap::{
    CommandFactory as _, Parser, Subcommand,
    builder::{
        StyledStr,
        styling::{AnsiColor, Styles},
    },
    error::{ContextKind, ContextValue},
};

use crate::{
    command,
    exit::{EXIT_CODES, Failure},
    output::{Format, Output, confirm, note},
};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Yellow.on_default().bold())
    .usage(AnsiColor::Yellow.on_default().bold())
    .literal(AnsiColor::Cyan.on_default())
    .placeholder(AnsiColor::Green.on_default());

const FIRST_STEPS: &str = "\
First steps:
  better-compute check examples-fleet          look for mistakes
  better-compute up --dev --fleet ./my-fleet   run a whole control plane
  better-compute token create --pool h100      print the line that makes a machine join
  better-compute status                        see what is applied, who has converged";

/// A git repository says what a GPU fleet should be; this keeps it so.
#[derive(Debug, Parser)]
#[command(
    name = "better-compute",
    version,
    styles = STYLES,
    after_help = FIRST_STEPS,
    after_long_help = format!("{FIRST_STEPS}\n\n{EXIT_CODES}"),
    disable_help_subcommand = true,
    max_term_width = 100,
)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Reads the command line, or ends the process with what is wrong with it.
    #[must_use]
    pub fn read() -> Self {
        Self::try_parse().unwrap_or_else(|mut error| {
            // Clap's own shows what the environment has said as if it had to be typed.
            if error.get(ContextKind::Usage).is_some() {
                error.insert(ContextKind::Usage, ContextValue::StyledStr(usage(std::env::args_os().skip(1))));
            }
            error.exit()
        })
    }
}

/// The usage of the verb that these words are about.
fn usage(words: impl Iterator<Item = OsString>) -> StyledStr {
    let mut command = Cli::command();
    command.build();
    let mut verb = &mut command;
    for word in words {
        if verb.find_subcommand(&word).is_some() {
            verb = verb.find_subcommand_mut(&word).expect("it was found");
        }
    }
    verb.render_usage()
}

/// Every verb.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "a verb's own struct says what it does, and its help is made from that")]
pub enum Command {
    Check(command::check::Check),
    Fmt(command::fmt::Fmt),
    Plan(command::plan::Plan),
    Verify(command::verify::Verify),
    Trust(command::trust::Trust),
    Explain(command::explain::Explain),
    Kinds(command::kinds::Kinds),
    Schema(command::schema::Schema),
    Lsp(command::lsp::Lsp),
    Up(command::up::Up),
    Serve(command::serve::Serve),
    Migrate(command::migrate::Migrate),
    Keys(command::keys::Keys),
    Release(command::release::Release),
    Status(command::status::Status),
    Get(command::get::Get),
    Drift(command::drift::Drift),
    Adopt(command::adopt::Adopt),
    History(command::history::History),
    Why(command::why::Why),
    Holds(command::holds::Holds),
    Cordon(command::cordon::Cordon),
    Uncordon(command::cordon::Uncordon),
    Suspend(command::suspend::Suspend),
    Resume(command::suspend::Resume),
    Rollback(command::rollback::Rollback),
    Quarantine(command::quarantine::Quarantine),
    Run(command::run::Run),
    Commands(command::commands::Commands),
    Approve(command::approve::Approve),
    Reject(command::approve::Reject),
    Withdraw(command::approve::Withdraw),
    Batches(command::batches::Batches),
    Breakglass(command::breakglass::Breakglass),
    Audit(Box<command::audit::Audit>),
    Receipt(Box<command::receipt::Receipt>),
    Secrets(command::secrets::Secrets),
    Token(command::token::Token),
    Joins(command::joins::Joins),
    Node(command::node::Node),
    Api(command::api::Api),
    Completions(command::completions::Completions),
}

/// How results are written; every command has it.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct FormatArg {
    /// How results are written
    #[arg(short = 'o', long, value_enum, default_value_t, value_name = "FORMAT", global = true)]
    pub format: Format,
}

/// Whether somebody is asked first; every command has it that does what is not taken back.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct Sure {
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}

impl Sure {
    /// Whether it may go on. What does not happen without a yes is said: `nothing was signed`.
    ///
    /// # Errors
    /// When nobody can be asked.
    pub fn ask(self, output: &Output, question: &str, otherwise: &str) -> Result<bool, Failure> {
        let agreed = self.yes || confirm(output, question)?;
        if !agreed {
            note(otherwise);
        }
        Ok(agreed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_usage_is_that_of_the_verb_and_says_nothing_of_the_environment() {
        let usage = |line: &str| usage(line.split(' ').map(OsString::from)).to_string();
        assert_eq!(usage("commands show --wait"), "Usage: better-compute commands show [OPTIONS] <ID>");
        assert!(usage("run node.reboot").contains("--pool <POOL>"));
    }

    #[test]
    fn help_reads_well() {
        let mut pages = Vec::new();
        collect(Cli::command().term_width(100), String::new(), &mut pages);
        insta::assert_snapshot!(pages.join("\n\n"));
    }

    #[test]
    fn every_verb_has_an_example() {
        for verb in Cli::command().get_subcommands() {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Examples:\n  better-compute "), "{} has no example", verb.get_name());
        }
    }

    fn collect(command: clap::Command, path: String, pages: &mut Vec<String>) {
        let path =
            if path.is_empty() { command.get_name().to_owned() } else { format!("{path} {}", command.get_name()) };
        let mut shown = command.clone().bin_name(path.clone()).term_width(100);
        let text = shown.render_long_help().to_string();
        let clean: Vec<&str> = text.lines().map(str::trim_end).collect();
        pages.push(format!("$ {path} --help\n{}", clean.join("\n").trim_end()));
        for sub in command.get_subcommands() {
            collect(sub.clone(), path.clone(), pages);
        }
    }
}
