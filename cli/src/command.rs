//! One file per verb: its arguments, its examples, and what it does.

pub mod adopt;
pub mod api;
pub mod approve;
pub mod audit;
pub mod batches;
pub mod breakglass;
pub mod check;
pub mod commands;
pub mod completions;
pub mod cordon;
pub mod drift;
pub mod explain;
pub mod fmt;
pub mod get;
pub mod history;
pub mod hold;
pub mod holds;
pub mod joins;
pub mod keys;
pub mod kinds;
pub mod lsp;
pub mod migrate;
pub mod node;
mod owner;
pub mod plan;
pub mod quarantine;
pub mod receipt;
pub mod release;
pub mod rollback;
pub mod run;
pub mod schema;
pub mod secrets;
pub mod serve;
pub mod status;
pub mod suspend;
pub mod token;
pub mod trust;
pub mod up;
pub mod verify;
pub mod why;

use ::schema::clock::SharedClock;

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
        Command::Fmt(fmt) => fmt.run(&output(Format::Text)),
        Command::Plan(plan) => plan.run(&output(plan.format.output())).await,
        Command::Trust(trust) => trust.run(&output(trust.format.format)),
        Command::Verify(verify) => verify.run(&output(verify.format.format)),
        Command::Explain(explain) => explain.run(&output(explain.format.format)),
        Command::Kinds(kinds) => kinds.run(&output(kinds.format.format)),
        Command::Schema(schema) => schema.run(&output(Format::Json)),
        Command::Lsp(lsp) => tokio::task::block_in_place(|| lsp.run()),
        Command::Up(up) => up.run(clock).await,
        Command::Serve(serve) => serve.run(clock).await,
        Command::Migrate(migrate) => migrate.run().await,
        Command::Keys(keys) => keys.run(&clock).await,
        Command::Status(status) => status.run(&clock).await,
        Command::Get(get) => get.run(&output(get.format.format)).await,
        Command::Drift(drift) => drift.run(&output(drift.format.format)).await,
        Command::Adopt(adopt) => adopt.run(&output(adopt.format.format)).await,
        Command::History(history) => history.run(&output(history.format.format)).await,
        Command::Why(why) => why.run(&output(why.format.format)).await,
        Command::Holds(holds) => holds.run(&output(holds.format.format)).await,
        Command::Cordon(cordon) => cordon.run(&output(cordon.format.format)).await,
        Command::Uncordon(uncordon) => uncordon.run(&output(uncordon.format.format)).await,
        Command::Suspend(suspend) => suspend.run(&output(suspend.format.format)).await,
        Command::Resume(resume) => resume.run(&output(resume.format.format)).await,
        Command::Release(release) => release.run(&output(release.format.format)),
        Command::Rollback(rollback) => rollback.run(&output(rollback.format.format)).await,
        Command::Quarantine(quarantine) => quarantine.run(&output(quarantine.format.format)).await,
        Command::Run(run) => run.run(&clock).await,
        Command::Approve(approve) => approve.run(&output(approve.say.format.format)).await,
        Command::Reject(reject) => reject.run(&output(reject.say.format.format)).await,
        Command::Withdraw(withdraw) => withdraw.run(&output(withdraw.say.format.format)).await,
        Command::Batches(batches) => batches.run(&clock).await,
        Command::Breakglass(breakglass) => breakglass.run(&output(breakglass.format.format)).await,
        Command::Commands(commands) => commands.run(&clock).await,
        Command::Receipt(receipt) => receipt.run(&output(receipt.format.format)).await,
        Command::Audit(audit) => audit.run(&output(audit.format().format)).await,
        Command::Secrets(secrets) => secrets.run(&output(secrets.format.format)).await,
        Command::Token(token) => token.run(&clock).await,
        Command::Node(node) => node.run(&output(node.format.format)).await,
        Command::Joins(joins) => joins.run(&output(joins.format.format)).await,
        Command::Api(api) => api.run(&output(Format::Json)).await,
        Command::Completions(completions) => completions.run(),
    }
}
