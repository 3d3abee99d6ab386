//! One file per verb: its arguments, its examples, and what it does.

pub mod api;
pub mod check;
pub mod completions;
pub mod explain;
pub mod get;
pub mod joins;
pub mod keys;
pub mod kinds;
pub mod migrate;
pub mod plan;
pub mod serve;
pub mod status;
pub mod token;
pub mod up;

use schema::clock::SharedClock;

use crate::{
    args::Command,
    exit::{Exit, Failure},
    output::{Format, Output},
};

/// Runs a command to its end.
///
/// # Errors
/// Every way in which a command fails, ready to be shown.
pub async fn run(command: Command, clock: SharedClock) -> Result<Exit, Failure> {
    let output = |format: Format| Output::detect(format, clock.now());
    match command {
        Command::Check(check) => check.run(&output(Format::Text)),
        Command::Plan(plan) => plan.run(&output(plan.format.format)).await,
        Command::Explain(explain) => explain.run(&output(explain.format.format)),
        Command::Kinds(kinds) => kinds.run(&output(kinds.format.format)),
        Command::Up(up) => up.run(clock).await,
        Command::Serve(serve) => serve.run(clock).await,
        Command::Migrate(migrate) => migrate.run().await,
        Command::Keys(keys) => keys.run(&clock).await,
        Command::Status(status) => status.run(&clock).await,
        Command::Get(get) => get.run(&output(get.format.format)).await,
        Command::Token(token) => token.run(&clock).await,
        Command::Joins(joins) => joins.run(&output(joins.format.format)).await,
        Command::Api(api) => api.run(&output(Format::Json)).await,
        Command::Completions(completions) => completions.run(),
    }
}
