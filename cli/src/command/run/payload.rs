//! What a command is told, as people type it: `KEY=VALUE` pairs, a JSON object, or a file of it.

use std::{io::Read as _, path::Path};

use serde_json::{Map, Value};

use crate::exit::{During as _, Failure};

/// The payload; an empty object when nothing is said.
///
/// # Errors
/// When a word is neither a pair nor a JSON object, or a file cannot be read.
pub(super) fn read(words: &[String], file: Option<&Path>) -> Result<Value, Failure> {
    let text = match file {
        None => return said(words),
        Some(path) if path.as_os_str() == "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).during("cannot read standard input")?;
            text
        }
        Some(path) => std::fs::read_to_string(path).during(format!("cannot read {}", path.display()))?,
    };
    object(&text)
}

fn said(words: &[String]) -> Result<Value, Failure> {
    if let [only] = words
        && only.trim_start().starts_with('{')
    {
        return object(only);
    }
    let mut members = Map::new();
    for word in words {
        let pair = word.split_once('=').filter(|(key, _)| !key.is_empty());
        let (key, value) =
            pair.ok_or_else(|| Failure::usage(format!("{word:?} is neither KEY=VALUE nor the only JSON object")))?;
        // What reads as JSON is meant as such; everything else is a text.
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        if members.insert(key.to_owned(), value).is_some() {
            return Err(Failure::usage(format!("{key} is said twice")));
        }
    }
    Ok(Value::Object(members))
}

fn object(text: &str) -> Result<Value, Failure> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| Failure::usage(format!("the payload is not JSON: {error}")))?;
    if value.is_object() { Ok(value) } else { Err(Failure::usage("the payload is a JSON object")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn words(words: &[&str]) -> Result<Value, Failure> {
        said(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn pairs_are_json_where_they_read_as_such() {
        let read = words(&["sections=[\"gpus\"]", "rescan=true", "reason=new kernel=6", "n=3"]).unwrap();
        assert_eq!(read, json!({ "sections": ["gpus"], "rescan": true, "reason": "new kernel=6", "n": 3 }));
        assert_eq!(words(&[]).unwrap(), json!({}));
        assert_eq!(words(&["{\"a\": 1}"]).unwrap(), json!({ "a": 1 }));
    }

    #[test]
    fn what_is_neither_is_refused() {
        for bad in [&["rescan"][..], &["=1"], &["a=1", "a=2"], &["{\"a\": 1}", "b=2"], &["{oops"]] {
            assert!(words(bad).is_err(), "{bad:?}");
        }
        assert!(object("[1]").is_err());
    }
}
