//! `better-compute`: parses the command line, builds the runtime, runs one command, and turns its end into an exit code.

use std::{process::ExitCode, sync::Arc};

use cli::{
    args::Cli,
    command,
    exit::{Exit, Failure},
    output,
};
use schema::clock::SystemClock;

fn main() -> ExitCode {
    let cli = Cli::read();
    pki::install_provider();
    let exit = match run(cli) {
        Ok(exit) => exit,
        Err(failure) => {
            output::failure(&failure);
            failure.exit
        }
    };
    ExitCode::from(exit as u8)
}

fn run(cli: Cli) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(8 << 20)
        .build()
        .map_err(|error| Failure::because("cannot start the runtime", &error))?;
    let result = runtime.block_on(command::run(cli.command, Arc::new(SystemClock)));
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    result
}
