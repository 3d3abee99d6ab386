//! `secrets`: values that machines need and nobody should read.

use std::{
    fs::File,
    io::{self, IsTerminal as _, Read},
    path::PathBuf,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::{Args, Subcommand};
use schema::secret::{MAX_SECRET_BYTES, SecretName};
use schema::time::Timestamp;
use serde_json::{Value, json};

use super::token::once;
use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::{During as _, Exit, Failure},
    output::{Output, Table, note},
};

const EXAMPLES: &str = "\
Examples:
  better-compute secrets put registry/pull-token --file ./token
  pass show ntp | better-compute secrets put ntp/key
  better-compute secrets list
  better-compute secrets delete ntp/key

A value comes from a file or from standard input, never from the command line, and is kept as it is: a newline at its
end too. No command shows it again.";

/// Keep, list and delete secrets.
///
/// Keeps values sealed under a key that is not in the database. Documents refer to them as secret://NAME.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Secrets {
    /// What to do; a list when nothing is said
    #[command(subcommand)]
    pub verb: Option<Verb>,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Keep a value as the next version of a secret
    Put {
        /// Its name, for example registry/pull-token
        #[arg(value_name = "NAME")]
        name: SecretName,
        /// The file that holds the value, whole [default: standard input]
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// List secrets, without their values
    List,
    /// Forget a secret with all its versions
    Delete {
        /// Its name
        #[arg(value_name = "NAME")]
        name: SecretName,
        /// Also while machines refer to it
        #[arg(long)]
        force: bool,
    },
}

impl Secrets {
    /// Does it.
    ///
    /// # Errors
    /// When the value cannot be read, or the call fails.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        match &self.verb {
            None | Some(Verb::List) => {
                let listed = Client::new(&self.target)?.call("secrets.list", &json!({})).await?;
                if output.is_json() {
                    output.json(&json!({ "secrets": listed["items"] }))?;
                } else {
                    output.table(&table(&listed, output), "no secrets")?;
                }
            }
            Some(Verb::Put { name, file }) => {
                let value = read(file.as_ref())?;
                if value.ends_with(b"\n") {
                    note("the value ends with a newline, which is part of it");
                }
                let input = json!({ "name": name, "value": STANDARD.encode(&value), "idempotencyKey": once() });
                let done = Client::new(&self.target)?.call("secrets.put", &input).await?;
                if output.is_json() {
                    output.json(&done)?;
                } else {
                    output.line(format!("{name} is kept as version {}", done["version"]))?;
                }
            }
            Some(Verb::Delete { name, force }) => {
                let input = json!({ "name": name, "force": force, "idempotencyKey": once() });
                let done = Client::new(&self.target)?.call("secrets.delete", &input).await?;
                if output.is_json() {
                    output.json(&done)?;
                } else {
                    output.line(format!("{name} is gone, with all its versions"))?;
                }
            }
        }
        Ok(Exit::Ok)
    }
}

fn read(file: Option<&PathBuf>) -> Result<Vec<u8>, Failure> {
    match file {
        Some(path) => {
            let what = format!("cannot read {}", path.display());
            let mut from = File::open(path).during(&what)?;
            bounded(&mut from).during(&what)
        }
        None if io::stdin().is_terminal() => Err(Failure::usage("no value: standard input is a terminal")
            .hint("name a file with --file, or pipe the value in; what is typed here could be seen")),
        None => bounded(&mut io::stdin().lock()).during("cannot read the value from standard input"),
    }
    .and_then(|value| match value.len() {
        0 => Err(Failure::usage("the value is empty")),
        length if length > MAX_SECRET_BYTES => {
            Err(Failure::usage(format!("the value has more than {MAX_SECRET_BYTES} bytes")))
        }
        _ => Ok(value),
    })
}

fn bounded(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let most = u64::try_from(MAX_SECRET_BYTES).unwrap_or(u64::MAX);
    let mut value = Vec::new();
    from.take(most + 1).read_to_end(&mut value)?;
    Ok(value)
}

fn table(listed: &Value, output: &Output) -> Table {
    let mut table = Table::new(&["name", "version", "put", "by"]).whole(&["name"]);
    for secret in listed["items"].as_array().into_iter().flatten() {
        let text = |member: &str| secret[member].as_str().unwrap_or_default();
        let at = text("createdAt").parse::<Timestamp>().map_or_else(|_| String::new(), |at| output.ago(at));
        table.row([text("name").into(), secret["version"].to_string().into(), at.into(), text("createdBy").into()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn file(content: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        file
    }

    #[test]
    fn a_value_is_read_as_it_is() {
        let value = b" a\0b \r\n\n";
        assert_eq!(read(Some(&file(value).path().to_owned())).unwrap(), value);
    }

    #[test]
    fn what_cannot_be_a_value_is_refused() {
        for content in [Vec::new(), vec![b'x'; MAX_SECRET_BYTES + 1]] {
            let refused = read(Some(&file(&content).path().to_owned())).unwrap_err();
            assert_eq!(refused.exit, Exit::Usage);
        }
        assert_eq!(read(Some(&file(&vec![b'x'; MAX_SECRET_BYTES]).path().to_owned())).unwrap().len(), MAX_SECRET_BYTES);
    }
}
