//! What a control plane says while it runs: one line per event, on standard error.

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

use crate::exit::{During as _, Failure};

/// How events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

/// What is logged, and how.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Log")]
pub struct LogArgs {
    /// What is logged: a level, or levels by module such as `info,gateway=debug`
    #[arg(long, value_name = "FILTER", env = "BETTER_COMPUTE_LOG", hide_env_values = true, default_value = "info")]
    pub log: String,
    /// How it is written
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        env = "BETTER_COMPUTE_LOG_FORMAT",
        hide_env_values = true
    )]
    pub log_format: LogFormat,
}

impl LogArgs {
    /// Starts the log.
    ///
    /// # Errors
    /// When the filter makes no sense.
    pub fn start(&self) -> Result<(), Failure> {
        let levels = if self.log.contains('=') || self.log.contains(',') {
            self.log.clone()
        } else {
            // Libraries speak only when something is wrong.
            format!("{},sqlx=warn,hyper=warn,h2=warn,tonic=warn,rustls=warn,gix=warn,reqwest=warn", self.log)
        };
        let filter = EnvFilter::builder().parse(&levels).during(format!("{:?} is not a log filter", self.log))?;
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        let done = match self.log_format {
            LogFormat::Text => log.with_target(false).with_ansi(false).compact().try_init(),
            LogFormat::Json => log.json().try_init(),
        };
        done.map_err(|error| Failure::failed(format!("cannot start the log: {error}")))
    }
}
