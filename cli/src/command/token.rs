//! `token`: what lets machines join, and what lets programs call the API.

mod ci;

use clap::{Args, Subcommand};
use schema::{attested::Attested, clock::SharedClock, command::CommandKind, id::RequestId, name::Name, time::Duration};
use serde_json::{Value, json};

use super::get::{self, Kind};
use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::{Exit, Failure},
    output::{Output, Table, note, text::count},
};

const EXAMPLES: &str = "\
Examples:
  better-compute token create --pool h100                 for one machine, for a day
  better-compute token create --pool h100 --uses 40 --expires 2h
  better-compute token create --pool h100 --expect-serial PF3K0X91
  better-compute token create --pool h100 --reclaim       for a machine whose disk was replaced
  better-compute token create --pool h100 --kinds inventory.refresh,diag.nvml
  better-compute token list
  better-compute token revoke jt_01k9m2v7t3c4w8d5e6f7g8h9ja
  better-compute token api create --scope nodes:read --expires 90d
  better-compute token ci                                 for a pipeline that plans pull requests: address, token, certificates

A token is printed once; only its hash is kept.";

/// Make, list and revoke tokens.
///
/// Makes, lists and revokes tokens: join tokens for machines, and API tokens (`token api …`) for people and programs.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Token {
    /// What to do
    #[command(subcommand)]
    pub verb: Verb,
}

/// What can be done with tokens.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Make a join token, and print the line that uses it
    Create(Create),
    /// List join tokens
    List(Common),
    /// Revoke a join token; machines that joined with it stay
    Revoke {
        /// The token's id, as `token list` shows it
        #[arg(value_name = "ID")]
        id: String,
        /// Where and how
        #[command(flatten)]
        common: Common,
    },
    /// Make, list and revoke API tokens
    #[command(subcommand)]
    Api(ApiVerb),
    /// Make what a pipeline needs: three secrets to paste
    Ci(ci::Ci),
}

/// What can be done with API tokens.
#[derive(Debug, Subcommand)]
pub enum ApiVerb {
    /// Make an API token
    Create {
        /// What it may do, for example nodes:read; may be given several times
        #[arg(long = "scope", value_name = "SCOPE", required_unless_present = "plan_only")]
        scopes: Vec<String>,
        /// Only to plan, for a pipeline: the scope plans:preview, for a day unless --expires says otherwise
        #[arg(long, conflicts_with = "scopes")]
        plan_only: bool,
        /// What it is for
        #[arg(long, value_name = "TEXT", default_value = "made by hand")]
        name: String,
        /// How long it works [default: 90d]
        #[arg(long, value_name = "DURATION")]
        expires: Option<Duration>,
        /// Where and how
        #[command(flatten)]
        common: Common,
    },
    /// List API tokens
    List(Common),
    /// Revoke an API token
    Revoke {
        /// The token's id
        #[arg(value_name = "ID")]
        id: String,
        /// Where and how
        #[command(flatten)]
        common: Common,
    },
}

/// Makes a join token.
#[derive(Debug, Args)]
pub struct Create {
    /// The pool that machines join; one that a `node` document puts elsewhere needs a token that expects it
    #[arg(long, value_name = "POOL")]
    pub pool: Name,
    /// How many machines may use it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub uses: u32,
    /// How long it works
    #[arg(long, value_name = "DURATION", default_value = "24h")]
    pub expires: Duration,
    /// Only a machine with this serial number; may be given several times
    #[arg(long = "expect-serial", value_name = "SERIAL")]
    pub serials: Vec<String>,
    /// Only a machine with this MAC address; may be given several times
    #[arg(long = "expect-mac", value_name = "MAC")]
    pub macs: Vec<String>,
    /// Only a machine with this hardware key; may be given several times
    #[arg(long = "expect-hardware-key", value_name = "SHA256")]
    pub hardware_keys: Vec<String>,
    /// Only a machine that gets this name; may be given several times
    #[arg(long = "expect-name", value_name = "NAME")]
    pub expected_names: Vec<Name>,
    /// Only a machine that proves to be this, such as tpm:sha256:…; may be given several times
    #[arg(long = "expect-attested", value_name = "IDENTITY")]
    pub attested: Vec<Attested>,
    /// A machine that is known by its hardware or its document takes its old node back
    #[arg(long)]
    pub reclaim: bool,
    /// Only these kinds of commands run on a machine that joins by it, such as inventory.refresh,diag.nvml [default: all]
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub kinds: Vec<CommandKind>,
    /// Print the token alone, for scripts
    #[arg(long, short)]
    pub quiet: bool,
    /// Where and how
    #[command(flatten)]
    pub common: Common,
}

/// What every verb has.
#[derive(Debug, Args)]
pub struct Common {
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

impl Token {
    /// Does it.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn run(&self, clock: &SharedClock) -> Result<Exit, Failure> {
        match &self.verb {
            Verb::Create(create) => create.run(&create.common.output(clock)).await,
            Verb::List(common) => {
                let output = common.output(clock);
                let items = get::list(&common.client()?, Kind::Tokens, None, None).await?;
                if output.is_json() {
                    output.json(&json!({ "tokens": items }))?;
                } else {
                    output.table(&get::table(Kind::Tokens, &items, &output), "no join tokens")?;
                }
                Ok(Exit::Ok)
            }
            Verb::Revoke { id, common } => common.revoke("tokens.revoke", id, clock).await,
            Verb::Api(verb) => verb.run(clock).await,
            Verb::Ci(ci) => ci.run(&ci.common.output(clock)).await,
        }
    }
}

impl Create {
    async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let client = self.common.client()?;
        let input = json!({
            "pool": self.pool, "uses": self.uses, "expires": self.expires, "expect": self.expect(),
            "reclaim": self.reclaim, "kinds": self.kinds.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "idempotencyKey": once(),
        });
        let made = client.call("tokens.create", &input).await?;
        if output.is_json() {
            output.json(&made)?;
            return Ok(Exit::Ok);
        }
        let token = field(&made, "token")?;
        if self.quiet {
            output.line(token)?;
            return Ok(Exit::Ok);
        }
        output.line(token)?;
        note(format!(
            "\nGood for {} of pool {}, for {}. It is shown this once. {}:\n\n  {}\n",
            count(u64::from(self.uses), "machine"),
            self.pool,
            self.expires,
            if is_dev(&made) {
                "For a machine that a file describes (without --hardware and --root it is this host that joins)"
            } else {
                "On the machine, as root"
            },
            join_line(&made, &client, token),
        ));
        Ok(Exit::Ok)
    }
}

impl Create {
    fn expect(&self) -> Value {
        let mut expect = serde_json::Map::new();
        for (kind, values) in [
            ("serial", json!(self.serials)),
            ("mac", json!(self.macs)),
            ("hardwareKey", json!(self.hardware_keys)),
            ("name", json!(self.expected_names)),
            ("attested", json!(self.attested)),
        ] {
            if values.as_array().is_some_and(|values| !values.is_empty()) {
                expect.insert(kind.to_owned(), values);
            }
        }
        Value::Object(expect)
    }
}

/// The command that makes a machine join with this token.
fn join_line(made: &Value, client: &Client, token: &str) -> String {
    let local = client.local.as_ref();
    let gateway = made
        .pointer("/gateways/0")
        .and_then(Value::as_str)
        .or(local.map(|file| file.gateway.as_str()))
        .unwrap_or("https://GATEWAY:PORT");
    let pin = made.get("pin").and_then(Value::as_str).or(local.map(|file| file.pin.as_str())).unwrap_or("PIN");
    let described = if is_dev(made) { " --root DIR --hardware FILE" } else { "" };
    format!("BCD_JOIN_TOKEN={token} bcd join {gateway} --pin {pin}{described} && bcd run{described}")
}

/// Whether the control plane admits machines that a file describes.
fn is_dev(made: &Value) -> bool {
    made.get("dev").and_then(Value::as_bool) == Some(true)
}

impl ApiVerb {
    async fn run(&self, clock: &SharedClock) -> Result<Exit, Failure> {
        match self {
            Self::Create { scopes, plan_only, name, expires, common } => {
                let output = common.output(clock);
                let scopes = if *plan_only { vec!["plans:preview".to_owned()] } else { scopes.clone() };
                let days = if *plan_only { 1 } else { 90 };
                let expires = expires.unwrap_or_else(|| Duration::from_secs(days * 86_400));
                let input = json!({ "name": name, "scopes": scopes, "expires": expires, "idempotencyKey": once() });
                let made = common.client()?.call("tokens.createApi", &input).await?;
                if output.is_json() {
                    output.json(&made)?;
                } else {
                    output.line(field(&made, "token")?)?;
                    note(format!("\nIt may do {}, for {expires}. It is shown this once.", scopes.join(", ")));
                }
                Ok(Exit::Ok)
            }
            Self::List(common) => {
                let output = common.output(clock);
                let answer = common.client()?.call("tokens.listApi", &json!({})).await?;
                if output.is_json() {
                    output.json(&answer)?;
                } else {
                    output.table(&api_table(&answer, &output), "no API tokens")?;
                }
                Ok(Exit::Ok)
            }
            Self::Revoke { id, common } => common.revoke("tokens.revokeApi", id, clock).await,
        }
    }
}

fn api_table(answer: &Value, output: &Output) -> Table {
    let mut table = Table::new(&["id", "name", "scopes", "expires"]).whole(&["id", "scopes"]);
    for item in answer.get("items").and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or("-").to_owned();
        let scopes: Vec<&str> =
            item.get("scopes").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let expires = text("expiresAt").parse().map_or_else(|_| "never".to_owned(), |at| output.ago(at));
        table.row([text("id").into(), text("name").into(), scopes.join(" ").into(), expires.into()]);
    }
    table
}

impl Common {
    fn output(&self, clock: &SharedClock) -> Output {
        Output::detect(self.format.format, clock.now())
    }

    fn client(&self) -> Result<Client, Failure> {
        Client::new(&self.target)
    }

    async fn revoke(&self, method: &str, id: &str, clock: &SharedClock) -> Result<Exit, Failure> {
        let output = self.output(clock);
        let answer = self.client()?.call(method, &json!({ "id": id, "idempotencyKey": once() })).await?;
        if output.is_json() {
            output.json(&answer)?
        } else {
            output.line(format!("revoked {id}"))?
        }
        Ok(Exit::Ok)
    }
}

fn field<'v>(value: &'v Value, key: &str) -> Result<&'v str, Failure> {
    value.get(key).and_then(Value::as_str).ok_or_else(|| Failure::failed(format!("the answer has no {key}")))
}

/// A key under which a call that was typed once is done once.
pub(super) fn once() -> String {
    RequestId::generate().to_string()
}
