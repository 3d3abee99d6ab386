//! `api`: one raw call, for what has no command of its own.

use clap::Args;
use serde_json::{Map, Value};

use crate::{
    client::{Client, Target},
    exit::{Exit, Failure},
    output::Output,
};

const EXAMPLES: &str = "\
Examples:
  better-compute api nodes.list
  better-compute api nodes.get node=node_01k9m2v7t3c4w8d5e6f7g8h9ja
  better-compute api nodes.cordon node=fra1-r12-u04 reason='fan 3' \\
      idempotencyKey=fan-3
  better-compute api tokens.create pool=h100 uses:=8 idempotencyKey=racks

A value is text with `key=value`, and JSON (numbers, booleans, lists) with `key:=json`.
The methods are described in docs/reference/openapi.json, and at /api/openapi.json of a control plane.";

/// Call one method of the API.
///
/// Calls one method of the API and prints its answer as JSON.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Api {
    /// The method, as GROUP.METHOD
    #[arg(value_name = "GROUP.METHOD")]
    pub method: String,
    /// The input, as key=value (text) or key:=json
    #[arg(value_name = "KEY=VALUE")]
    pub input: Vec<String>,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

impl Api {
    /// Calls.
    ///
    /// # Errors
    /// When the input makes no sense, or the call fails.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let input = input(&self.input)?;
        let answer = Client::new(&self.target)?.call(&self.method, &input).await?;
        output.json(&answer)?;
        Ok(Exit::Ok)
    }
}

fn input(words: &[String]) -> Result<Value, Failure> {
    let mut fields = Map::new();
    for word in words {
        let (key, value) = word
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("{word:?} is not an input; write key=value, or key:=json")))?;
        let (key, value) = match key.strip_suffix(':') {
            Some(key) => {
                let parsed = serde_json::from_str(value)
                    .map_err(|error| Failure::usage(format!("{key}: {value:?} is not JSON: {error}")))?;
                (key, parsed)
            }
            None => (key, Value::from(value)),
        };
        if fields.insert(key.to_owned(), value).is_some() {
            return Err(Failure::usage(format!("{key} is given twice")));
        }
    }
    Ok(Value::Object(fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Value, String> {
        input(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).map_err(|failure| failure.message)
    }

    #[test]
    fn words_are_text_unless_they_say_json() {
        let value = parsed(&["pool=h100", "uses:=8", "note=a=b", "tags:=[\"x\"]"]);
        assert_eq!(value, Ok(serde_json::json!({ "pool": "h100", "uses": 8, "note": "a=b", "tags": ["x"] })));
    }

    #[test]
    fn what_is_no_input_is_refused() {
        for word in ["pool", "uses:=eight"] {
            assert!(parsed(&[word]).is_err(), "{word}");
        }
        assert!(parsed(&["a=1", "a=2"]).is_err());
    }
}
