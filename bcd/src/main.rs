//! `bcd`: the node daemon's main. Reads the arguments, makes the clock, starts the log, and hands over.

use std::{process::ExitCode, sync::Arc};

use bcd::cli::{self, Cli};
use clap::Parser as _;
use schema::clock::SystemClock;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_env("BCD_LOG").unwrap_or_else(|_| EnvFilter::new("warn,bcd=info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false)
        .init();
    pki::install_provider();
    cli::run(cli, Arc::new(SystemClock))
}
