//! The way to a control plane: where it is, who vouches for it, and one clear sentence for each way it can fail.
//!
//! `BETTER_COMPUTE_URL`, `BETTER_COMPUTE_CA` (a PEM file) and `BETTER_COMPUTE_TOKEN` win over the `client.json` that `up`
//! leaves in its data directory. The server is believed only under that private CA.

use std::{error::Error as _, path::Path, time::Duration};

use clap::Args;
use reqwest::Certificate;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    data_dir::{self, ClientFile},
    exit::{During as _, Exit, Failure},
    output::{note, text::printable},
};

/// Which control plane is meant.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Control plane")]
pub struct Target {
    /// Data directory of a control plane on this machine
    #[arg(long, global = true, value_name = "DIR", env = "BETTER_COMPUTE_DATA", hide_env_values = true)]
    pub data: Option<std::path::PathBuf>,
    /// Where its API is, instead of what the data directory says
    #[arg(long, global = true, value_name = "URL", env = "BETTER_COMPUTE_URL", hide_env_values = true)]
    pub url: Option<String>,
    /// PEM file with the certificates that vouch for it
    #[arg(long, global = true, value_name = "FILE", env = "BETTER_COMPUTE_CA", hide_env_values = true)]
    pub ca: Option<std::path::PathBuf>,
    /// The same certificates themselves, for where an environment is all there is
    #[arg(long, global = true, value_name = "PEM", env = "BETTER_COMPUTE_CA_PEM", hide_env_values = true, hide = true)]
    pub ca_pem: Option<String>,
    /// API token; the environment is the better place for it
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        env = "BETTER_COMPUTE_TOKEN",
        hide_env_values = true,
        hide = true
    )]
    pub token: Option<String>,
}

/// A control plane that can be called.
#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    token: String,
    ca: Option<String>,
    /// What the data directory says about where nodes join; none when the control plane was named by hand.
    pub local: Option<ClientFile>,
}

/// The body of an error answer.
#[derive(Debug, Deserialize)]
struct ErrorBody {
    error: ApiError,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiError {
    code: String,
    message: String,
    #[serde(default)]
    why: Option<Value>,
    #[serde(default)]
    fields: Vec<Value>,
    #[serde(default)]
    request_id: Option<String>,
}

impl Client {
    /// Finds the control plane and prepares to call it. Nothing is sent yet.
    ///
    /// # Errors
    /// When no control plane is known, or its certificates cannot be read.
    pub fn new(target: &Target) -> Result<Self, Failure> {
        let data = data_dir::locate(target.data.as_deref());
        let file = match (&target.url, &target.data) {
            (Some(_), None) => None,
            _ => ClientFile::read(&data_dir::client_file(&data)).map_err(|failure| on_unreadable(failure, &data))?,
        };
        let token = target.token.clone().or_else(|| file.as_ref().map(|file| file.token.clone()));
        let (url, ca) = match (&target.url, &file) {
            (Some(url), _) => (url.clone(), read_ca(target, file.as_ref())?),
            (None, Some(file)) => (file.url.clone(), read_ca(target, Some(file))?),
            (None, None) => {
                let message =
                    format!("no control plane is known: {} is not there", data_dir::client_file(&data).display());
                return Err(Failure::new(Exit::Unreachable, message)
                    .hint("start one with `better-compute up --fleet DIR`, name its data directory with --data, or set BETTER_COMPUTE_URL, BETTER_COMPUTE_CA and BETTER_COMPUTE_TOKEN"));
            }
        };
        let token = token.ok_or_else(|| {
            Failure::new(Exit::Refused, "no API token")
                .hint("set BETTER_COMPUTE_TOKEN; `better-compute token api create` makes one")
        })?;
        let mut builder = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .timeout(Duration::from_secs(60))
            .no_proxy();
        if let Some(pem) = &ca {
            let certificates = Certificate::from_pem_bundle(pem.as_bytes())
                .during("cannot read the certificates of the control plane")?;
            builder = builder.tls_certs_only(certificates);
        }
        let http = builder.build().during("cannot prepare the connection to the control plane")?;
        Ok(Self { http, url: url.trim_end_matches('/').to_owned(), token, ca, local: file })
    }

    /// Whether the data directory says something else by now.
    #[must_use]
    pub fn is_outdated(&self, target: &Target) -> bool {
        let file = data_dir::client_file(&data_dir::locate(target.data.as_deref()));
        self.local.is_some() && ClientFile::read(&file).is_ok_and(|now| now != self.local)
    }

    /// The certificates that vouch for it, in PEM.
    #[must_use]
    pub fn ca(&self) -> Option<&str> {
        self.ca.as_deref()
    }

    /// Where the control plane is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Calls `group.method` and answers its result.
    ///
    /// # Errors
    /// One [`Failure`] per kind of trouble: nothing answers, a stranger answers, refused, and what the API says.
    pub async fn call(&self, method: &str, input: &Value) -> Result<Value, Failure> {
        let Some((group, name)) = method.split_once('.') else {
            return Err(Failure::usage(format!(
                "{method:?} is not a method; write GROUP.METHOD, for example nodes.list"
            )));
        };
        let address = format!("{}/api/compute/{group}/{name}", self.url);
        let sent = self.http.post(address).bearer_auth(&self.token).json(input).send().await;
        let answer = sent.map_err(|error| self.explain(&error))?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(|error| self.explain(&error))?;
        if status.is_success() {
            let answer: Value = serde_json::from_slice(&body)
                .during(format!("{} answered {method} with something that is not JSON", self.url))?;
            // Where the fleet stands says so in its own place.
            if method != "fleet.status" {
                unreadable(&answer).iter().for_each(note);
            }
            return Ok(answer);
        }
        Err(match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(ErrorBody { error }) => error.into_failure(),
            Err(_) => Failure::failed(format!("{} answered {method} with HTTP status {}", self.url, status.as_u16()))
                .hint("is this the API of a control plane? Its address is the `url` in client.json"),
        })
    }

    fn explain(&self, error: &reqwest::Error) -> Failure {
        let mut texts = vec![error.to_string()];
        let mut next = error.source();
        while let Some(cause) = next {
            texts.push(cause.to_string());
            next = cause.source();
        }
        let root = texts.last().cloned().unwrap_or_default();
        let certificate = texts.iter().any(|text| text.contains("certificate") || text.contains("UnknownIssuer"));
        if let Some(times) = pki::tls::untimely(error) {
            return Failure::new(
                Exit::Refused,
                format!("by the clock here the certificate of the server at {} does not count: {times}", self.url),
            )
            .hint("set the clock of this machine right; if it is, the control plane's is wrong, or it does not renew its certificate");
        }
        if certificate {
            return Failure::new(
                Exit::Refused,
                format!("the server at {} is not the one this client trusts: {root}", self.url),
            )
            .hint("its certificate must come from the CA in client.json or BETTER_COMPUTE_CA");
        }
        if error.is_timeout() {
            return Failure::new(Exit::Unreachable, format!("{} did not answer in time", self.url));
        }
        let hint = if self.url.starts_with("https://") {
            "is the control plane running (`better-compute up`, or `serve`)?"
        } else {
            "the API speaks https only; write https://HOST:PORT"
        };
        Failure::new(Exit::Unreachable, format!("cannot talk to {}: {root}", self.url)).hint(hint)
    }
}

/// What an answer leaves out because a row of the database cannot be read, one line each.
#[must_use]
pub fn unreadable(answer: &Value) -> Vec<String> {
    let line = |row: &Value| {
        let text = |key: &str| printable(row[key].as_str().unwrap_or_default());
        let (table, key, why, code) = (text("table"), text("key"), text("why"), text("code"));
        format!("left out: the row of {table} with {key} cannot be read: {why}; better-compute why {code}")
    };
    answer["unreadable"].as_array().into_iter().flatten().map(line).collect()
}

impl ApiError {
    fn into_failure(self) -> Failure {
        let exit = match self.code.as_str() {
            "UNAVAILABLE" => Exit::Unreachable,
            "INVALID_INPUT" => Exit::Usage,
            "NOT_FOUND" | "INTERNAL" | "ROW_UNREADABLE" => Exit::Failed,
            _ => Exit::Refused,
        };
        let denied = ["UNAUTHENTICATED", "ACCESS_DENIED"].contains(&self.code.as_str());
        let mut message = format!("{} ({})", self.message, self.code);
        let said = message.clone();
        for field in &self.fields {
            if field.get("message").and_then(Value::as_str).is_some_and(|text| said.contains(text)) {
                continue;
            }
            match (field.get("name").and_then(Value::as_str), field.get("message").and_then(Value::as_str)) {
                (Some(name), Some(text)) => message.push_str(&format!("\n  {name}: {text}")),
                _ => message
                    .push_str(&format!("\n  {}", field.as_str().map_or_else(|| field.to_string(), str::to_owned))),
            }
        }
        let hint = match self.why {
            Some(Value::String(why)) => Some(printable(&for_people(&why))),
            Some(Value::Null) | None => None,
            Some(other) => Some(other.to_string()),
        };
        let request = self
            .request_id
            .filter(|_| self.code == "INTERNAL")
            .map(|id| format!("the control plane's log has more under {id}"));
        Failure { exit, message, hint: hint.or(request), denied }
    }
}

fn read_ca(target: &Target, file: Option<&ClientFile>) -> Result<Option<String>, Failure> {
    match (&target.ca, target.ca_pem.as_ref().filter(|pem| !pem.trim().is_empty())) {
        (Some(path), _) => std::fs::read_to_string(path).map(Some).during(format!("cannot read {}", path.display())),
        (None, Some(pem)) => Ok(Some(pem.clone())),
        (None, None) => Ok(file.map(|file| file.ca.clone())),
    }
}

/// What people type for a method that an answer names.
const COMMANDS: [(&str, &str); 33] = [
    ("audit.export", "audit export"),
    ("audit.list", "audit"),
    ("audit.mend", "audit mend"),
    ("audit.receipt", "receipt"),
    ("commandBatches.list", "batches"),
    ("commands.cancel", "commands cancel"),
    ("commands.get", "commands show"),
    ("commands.list", "commands"),
    ("commands.run", "run"),
    ("fleet.holds", "holds"),
    ("fleet.quarantine", "quarantine"),
    ("fleet.release", "quarantine --release"),
    ("fleet.resume", "resume"),
    ("fleet.rollback", "rollback"),
    ("fleet.status", "status"),
    ("fleet.suspend", "suspend"),
    ("fleet.why", "why"),
    ("joins.get", "joins show"),
    ("joins.list", "joins"),
    ("nodes.cordon", "cordon"),
    ("nodes.drift", "drift"),
    ("nodes.get", "get node"),
    ("nodes.list", "get nodes"),
    ("nodes.uncordon", "uncordon"),
    ("plans.get", "get plan"),
    ("plans.list", "get plans"),
    ("plans.preview", "plan --live"),
    ("pools.list", "get pools"),
    ("revisions.get", "history REV"),
    ("revisions.list", "history"),
    ("sites.list", "get sites"),
    ("tokens.createApi", "token api create"),
    ("tokens.listApi", "token api list"),
];

/// The same sentence for people: methods that are commands are called as such.
fn for_people(text: &str) -> String {
    // Whoever misspelt a method is looking for one, and a whole command line is one already.
    if text.starts_with("did you mean") || text.contains("better-compute ") {
        return text.to_owned();
    }
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '`';
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_word) {
        let end = rest[start..].find(|c| !is_word(c)).map_or(rest.len(), |end| start + end);
        let word = rest[start..end].trim_end_matches('.');
        let end = start + word.len();
        let command = COMMANDS.iter().find(|(method, _)| *method == word.trim_matches('`'));
        out.push_str(&rest[..start]);
        match command {
            Some((_, command)) => out.push_str(&format!("`better-compute {command}`")),
            None => out.push_str(&rest[start..end]),
        }
        // Dots alone are no word.
        let end = end.max(start + rest[start..].chars().next().map_or(1, char::len_utf8));
        if word.is_empty() {
            out.push_str(&rest[start..end]);
        }
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

fn on_unreadable(failure: Failure, data: &Path) -> Failure {
    failure.hint(format!("client.json in {} belongs to the user who runs `better-compute up`", data.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(body: &str) -> Failure {
        serde_json::from_str::<ErrorBody>(body).unwrap().error.into_failure()
    }

    #[test]
    fn an_answer_without_permission_is_a_refusal() {
        let failure = failure(
            r#"{"error":{"code":"ACCESS_DENIED","message":"the token may not do this","why":"it lacks nodes:write","fields":[],"requestId":"req_1"}}"#,
        );
        assert_eq!((failure.exit, failure.hint.as_deref()), (Exit::Refused, Some("it lacks nodes:write")));
    }

    #[test]
    fn a_hint_names_the_command_and_not_the_method() {
        assert_eq!(
            for_people("ada: it broke; release it first (fleet.release), fleet.holds says more."),
            "ada: it broke; release it first (`better-compute quarantine --release`), `better-compute holds` says more."
        );
        assert_eq!(for_people("`tokens.createApi` makes one"), "`better-compute token api create` makes one");
        for left in
            ["did you mean nodes.list?", "better-compute api plans.preview commit=x", "see fleet.kdl:12 … then."]
        {
            assert_eq!(for_people(left), left);
        }
    }

    #[test]
    fn every_method_that_is_a_command_is_one() {
        let cli = <crate::args::Cli as clap::CommandFactory>::command();
        for (method, command) in COMMANDS {
            let (group, name) = method.split_once('.').unwrap();
            assert!(reconciler::api::table::find(group, name).is_some(), "{method}");
            let mut at = &cli;
            for word in command.split(' ') {
                let takes = |flag| at.get_arguments().any(|arg| arg.get_long() == Some(flag));
                match at.find_subcommand(word) {
                    Some(verb) => at = verb,
                    None => assert!(word.strip_prefix("--").map_or(!at.has_subcommands(), takes), "{command}"),
                }
            }
        }
    }

    #[test]
    fn what_the_control_plane_refuses_is_told_from_what_is_not_there_or_broken() {
        let exit = |code: &str| failure(&format!(r#"{{"error":{{"code":"{code}","message":"no"}}}}"#)).exit;
        for code in ["UNAUTHENTICATED", "ACCESS_DENIED", "CONFLICT", "INVALID_STATE", "UNSUPPORTED", "TOO_LARGE"] {
            assert_eq!(exit(code), Exit::Refused, "{code}");
        }
        for code in ["NOT_FOUND", "INTERNAL", "ROW_UNREADABLE"] {
            assert_eq!(exit(code), Exit::Failed, "{code}");
        }
        assert_eq!((exit("INVALID_INPUT"), exit("UNAVAILABLE")), (Exit::Usage, Exit::Unreachable));
    }

    #[test]
    fn fields_at_fault_are_named() {
        let failure = failure(
            r#"{"error":{"code":"INVALID_INPUT","message":"the input is not valid","fields":[{"name":"uses","message":"at least 1"}]}}"#,
        );
        assert_eq!(failure.message, "the input is not valid (INVALID_INPUT)\n  uses: at least 1");
        assert_eq!(failure.exit, Exit::Usage);
    }
}
