//! `token ci`: everything that a pipeline needs to ask the control plane for plans, and nothing that it does not.

use clap::Args;
use schema::time::Duration;
use serde_json::{Value, json};

use super::{Common, field, once};
use crate::{
    exit::{Exit, Failure},
    output::{Output, note},
};

/// Make what a pipeline needs: three secrets to paste
///
/// Makes a token that may plan and nothing else, with an end, and prints it with the address and the certificates of the
/// control plane, under the names by which `ci/plan.sh` and every command read them.
#[derive(Debug, Args)]
pub struct Ci {
    /// What it is for
    #[arg(long, value_name = "TEXT", default_value = "pull requests")]
    pub name: String,
    /// How long it works
    #[arg(long, value_name = "DURATION", default_value = "90d")]
    pub expires: Duration,
    /// Where the pipeline reaches the API, when that is not the address that this machine uses
    #[arg(long, value_name = "URL")]
    pub reach: Option<String>,
    /// Where and how
    #[command(flatten)]
    pub common: Common,
}

impl Ci {
    pub(super) async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let client = self.common.client()?;
        let ca = client.ca().ok_or_else(|| {
            Failure::failed("no certificates are known that vouch for the control plane")
                .hint("run it where `better-compute up` runs, or name them with --ca")
        })?;
        let url = self.reach.as_deref().unwrap_or(client.url());
        if !url.starts_with("https://") {
            return Err(Failure::usage("the API speaks https only").hint("write --reach https://HOST:PORT"));
        }
        let input = json!({
            "name": self.name, "scopes": ["plans:preview"], "expires": self.expires, "idempotencyKey": once(),
        });
        let made = client.call("tokens.createApi", &input).await?;
        let token = field(&made, "token")?;
        if output.is_json() {
            output.json(&json!({
                "BETTER_COMPUTE_URL": url, "BETTER_COMPUTE_TOKEN": token, "BETTER_COMPUTE_CA_PEM": ca,
                "id": made.get("id").cloned().unwrap_or(Value::Null),
            }))?;
            return Ok(Exit::Ok);
        }
        output.line(page(url, token, ca))?;
        note(format!(
            "\nThree secrets of the pipeline, under these names. The token may plan and do nothing else, for {}; it is shown this once,\n`better-compute token api revoke` ends it. The token in client.json may do everything and never ends: it stays where it is.",
            self.expires
        ));
        if is_loopback(url) {
            note(format!(
                "{url} is this machine's own address: --reach URL names the one that the pipeline uses, which the API's certificate has to name"
            ));
        }
        Ok(Exit::Ok)
    }
}

fn page(url: &str, token: &str, ca: &str) -> String {
    format!("BETTER_COMPUTE_URL\n{url}\n\nBETTER_COMPUTE_TOKEN\n{token}\n\nBETTER_COMPUTE_CA_PEM\n{}", ca.trim_end())
}

fn is_loopback(url: &str) -> bool {
    let host = url.trim_start_matches("https://");
    ["127.", "localhost", "[::1]"].iter().any(|local| host.starts_with(local))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_values_stand_under_their_names() {
        let page = page("https://compute.example.com", "bcat_1.2", "-----BEGIN CERTIFICATE-----\nx\n");
        let names: Vec<&str> = page.lines().filter(|line| line.starts_with("BETTER_COMPUTE_")).collect();
        assert_eq!(names, ["BETTER_COMPUTE_URL", "BETTER_COMPUTE_TOKEN", "BETTER_COMPUTE_CA_PEM"]);
        assert!(page.ends_with("x"));
    }

    #[test]
    fn an_address_that_no_pipeline_reaches_is_known() {
        assert!(is_loopback("https://127.0.0.1:7443") && is_loopback("https://localhost:7443"));
        assert!(!is_loopback("https://compute.example.com"));
    }
}
