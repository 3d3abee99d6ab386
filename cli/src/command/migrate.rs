//! `migrate`: brings a database to the shape that this version knows.

use clap::Args;
use store::{DbConfig, migrate};

use crate::{
    exit::{During as _, Exit, Failure},
    output::{self, text::count},
};

const EXAMPLES: &str = "\
Examples:
  better-compute migrate --database postgres://bc@db.example.com/bc
  DATABASE_URL=postgres://… better-compute migrate

`up` does this by itself; `serve` refuses a database that is not up to date.";

/// Bring a database up to date.
///
/// Applies the migrations that are missing, forward only. Two of them at once wait for one another. A database that a newer
/// version has touched is refused.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Migrate {
    /// The database
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    pub database: String,
}

impl Migrate {
    /// Migrates.
    ///
    /// # Errors
    /// When the database cannot be reached, is newer, or a statement fails.
    pub async fn run(&self) -> Result<Exit, Failure> {
        let config = DbConfig::from_url(&self.database).map_err(|error| Failure::usage(error.to_string()))?;
        let applied = migrate::run(&config).await.during("cannot bring the database up to date")?;
        let version = migrate::known_version();
        let text = if applied == 0 {
            format!("up to date at {version}")
        } else {
            format!("applied {}, now at {version}", count(applied as u64, "migration"))
        };
        output::plain(&text)?;
        Ok(Exit::Ok)
    }
}
