//! Which trust domain a new control plane gets: the one that was named, else the one that `fleet.kdl` names.

use std::path::Path;

use reconciler::source::{self, GitAccess, SourceConfig};
use schema::fleet;

use crate::exit::{During as _, Failure};

const DEV: &str = "bc.local";

/// Chooses. Looked at once, before the first keys are made; later the keys say it.
///
/// # Errors
/// When none is named and the fleet cannot be read, unless described hardware is admitted.
pub async fn choose(
    named: Option<&str>,
    dev: bool,
    config: &SourceConfig,
    access: &GitAccess,
    data: &Path,
) -> Result<String, Failure> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    match from_fleet(config.clone(), access.clone(), data.to_owned()).await {
        Ok(domain) => Ok(domain),
        Err(_) if dev => Ok(DEV.to_owned()),
        Err(failure) => {
            let message = format!("the trust domain is not known yet: {}", failure.message);
            Err(Failure { message, ..failure }
                .hint("name it with --trust-domain; every identity of the fleet is made under it, for good"))
        }
    }
}

async fn from_fleet(config: SourceConfig, access: GitAccess, data: std::path::PathBuf) -> Result<String, Failure> {
    let place = config.to_string();
    let looked = tokio::task::spawn_blocking(move || source::peek(&config, &access, &data))
        .await
        .during("the look at the repository ended early")?;
    let files = looked.during(format!("cannot read {place}"))?;
    // A mistake elsewhere may be mended later, and the keys are made now.
    let domain = fleet::load(&files).trust_domain;
    domain.ok_or_else(|| Failure::failed(format!("{place} has errors; `better-compute check` shows them")))
}
