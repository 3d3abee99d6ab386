//! `completions`: what a shell needs to complete this command line.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::{
    args::Cli,
    exit::{During as _, Exit, Failure},
    output,
};

const EXAMPLES: &str = "\
Examples:
  better-compute completions bash > /etc/bash_completion.d/better-compute
  better-compute completions zsh > ~/.zfunc/_better-compute";

/// Print completions for a shell.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

impl Completions {
    /// Prints.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn run(&self) -> Result<Exit, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "better-compute", &mut script);
        let script = String::from_utf8(script).during("cannot write completions")?;
        // clap_complete spells a hyphen of the program's name in two ways in bash, and goes from the one to the other.
        let script = script.replace("better__subcmd__compute", "better__compute");
        output::plain(script.trim_end())?;
        Ok(Exit::Ok)
    }
}
