//! Which trust domain a new control plane gets: the one that was named, else the one that `fleet.kdl` names.
//!
//! Where described hardware is admitted and the fleet cannot be read yet, the keys are made for a guess, and made anew as
//! soon as the fleet says something else: until then nothing can have been applied and nobody can have joined.

use std::{path::Path, time::Duration};

use reconciler::source::{self, GitAccess, Place, SourceConfig};
use schema::fleet;
use tokio_util::sync::CancellationToken;

use super::keys::KeyDir;
use crate::exit::{During as _, Failure};

const GUESS: &str = "bc.local";

/// Where the fleet is, and how it is reached.
#[derive(Debug, Clone)]
pub struct FleetPlace {
    /// The repository.
    pub config: SourceConfig,
    /// How it is reached.
    pub access: GitAccess,
    /// Where a remote one is kept.
    pub data: std::path::PathBuf,
}

impl FleetPlace {
    /// A repository, kept below a data directory.
    #[must_use]
    pub fn new(config: SourceConfig, access: GitAccess, data: &Path) -> Self {
        Self { config, access, data: data.to_owned() }
    }
}

/// Chooses, before the first keys are made; later the keys say it.
///
/// # Errors
/// When none is named and the fleet cannot be read, unless described hardware is admitted.
pub async fn choose(named: Option<&str>, dev: bool, place: &FleetPlace, keys: &KeyDir) -> Result<String, Failure> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    match from_fleet(place).await {
        Ok(domain) => Ok(domain),
        Err(_) if dev => {
            keys.mark_provisional()?;
            Ok(GUESS.to_owned())
        }
        Err(failure) => {
            let message = format!("the trust domain is not known yet: {}", failure.message);
            Err(Failure { message, ..failure }
                .hint("name it with --trust-domain; every identity of the fleet is made under it, for good"))
        }
    }
}

/// Waits until the fleet names another trust domain than the guess. Ends early only when it names the same one.
pub async fn outgrown(place: FleetPlace, keys: KeyDir, cancel: CancellationToken) {
    let pause = match place.config.place {
        Place::Local(_) => Duration::from_millis(500),
        Place::Remote(_) => Duration::from_secs(15),
    };
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        match from_fleet(&place).await {
            Ok(domain) if domain != GUESS => return,
            Ok(_) => {
                keys.settle().ok();
                return cancel.cancelled().await;
            }
            Err(_) => {}
        }
    }
}

/// The trust domain that the fleet names.
///
/// # Errors
/// When the repository or the fleet's own document cannot be read.
pub async fn from_fleet(place: &FleetPlace) -> Result<String, Failure> {
    let FleetPlace { config, access, data } = place.clone();
    let place = config.to_string();
    let looked = tokio::task::spawn_blocking(move || source::peek(&config, &access, &data))
        .await
        .during("the look at the repository ended early")?;
    let files = looked.during(format!("cannot read {place}"))?;
    // A mistake elsewhere may be mended later, and the keys are made now.
    let domain = fleet::load(&files).trust_domain;
    domain.ok_or_else(|| Failure::failed(format!("{place} has errors; `better-compute check` shows them")))
}
