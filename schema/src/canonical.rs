//! Canonical JSON: one text for one value.
//!
//! Objects are sorted by key (code point order), there is no white space, numbers are integers, and a member whose value
//! is null does not appear. Two documents that mean the same have the same bytes, so digests and signatures can be taken
//! over them.

use serde::Serialize;
use serde_json::Value;

use crate::digest::Digest;

/// Why a value has no canonical text.
#[derive(Debug, thiserror::Error)]
pub enum CanonicalError {
    /// Only integers have one text everywhere.
    #[error("a canonical document holds integers only, not {0}")]
    Float(serde_json::Number),
    /// The value does not serialise to JSON.
    #[error("the value does not serialise")]
    Serialise(#[source] serde_json::Error),
}

/// The canonical bytes of a value.
///
/// # Errors
/// When the value holds a number that is not an integer, or does not serialise.
pub fn to_vec(value: &impl Serialize) -> Result<Vec<u8>, CanonicalError> {
    let value = serde_json::to_value(value).map_err(CanonicalError::Serialise)?;
    let mut bytes = Vec::new();
    write(&value, &mut bytes)?;
    Ok(bytes)
}

/// The digest of a value's canonical bytes.
///
/// # Errors
/// As [`to_vec`].
pub fn digest(value: &impl Serialize) -> Result<Digest, CanonicalError> {
    to_vec(value).map(Digest::of)
}

/// The digest of the canonical bytes of what is JSON already.
///
/// # Errors
/// When the value holds a number that is not an integer.
pub fn digest_of(value: &Value) -> Result<Digest, CanonicalError> {
    let mut bytes = Vec::with_capacity(512);
    write(value, &mut bytes)?;
    Ok(Digest::of(bytes))
}

/// Whether JSON holds an escaped NUL, which no text that is stored can: `\u0000` that is not itself escaped, as it is in a
/// text about JSON. One walk, whatever the bytes are.
#[must_use]
pub fn has_nul(json: &[u8]) -> bool {
    let mut rest = json;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        rest = &rest[at + 1..];
        if rest.starts_with(b"u0000") {
            return true;
        }
        // What a backslash escapes begins no escape of its own.
        rest = rest.get(1..).unwrap_or_default();
    }
    false
}

fn write(value: &Value, out: &mut Vec<u8>) -> Result<(), CanonicalError> {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(flag) => out.extend_from_slice(if *flag { b"true" } else { b"false" }),
        Value::Number(number) if number.is_f64() => return Err(CanonicalError::Float(number.clone())),
        Value::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Value::String(text) => write_string(text, out)?,
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(item, out)?;
            }
            out.push(b']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().filter(|(_, member)| !member.is_null()).collect();
            members.sort_by(|a, b| a.0.cmp(b.0));
            out.push(b'{');
            for (index, (key, member)) in members.into_iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_string(key, out)?;
                out.push(b':');
                write(member, out)?;
            }
            out.push(b'}');
        }
    }
    Ok(())
}

fn write_string(text: &str, out: &mut Vec<u8>) -> Result<(), CanonicalError> {
    serde_json::to_writer(out, text).map_err(CanonicalError::Serialise)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn member_order_does_not_matter() {
        let one = json!({"b": 1, "a": {"d": [1, 2], "c": null}});
        let two = json!({"a": {"d": [1, 2]}, "b": 1});
        assert_eq!(to_vec(&one).expect("canonical"), to_vec(&two).expect("canonical"));
        assert_eq!(to_vec(&one).expect("canonical"), br#"{"a":{"d":[1,2]},"b":1}"#);
    }

    #[test]
    fn a_nul_is_told_from_its_own_escape() {
        let json = |text: &str| serde_json::to_vec(text).expect("serialises");
        assert!(has_nul(&json("a\0b")));
        assert!(has_nul(&json("\\\0")));
        assert!(!has_nul(&json(r"a\u0000b")));
        assert!(!has_nul(&json(r"\\u0000")));
        assert!(!has_nul(b"\\"));
    }

    #[test]
    fn the_longest_run_of_backslashes_is_walked_once() {
        let run = vec![b'\\'; 4 << 20];
        assert!(!has_nul(&run));
        assert!(has_nul(&[&run[..], br"\u0000"].concat()));
    }

    #[test]
    fn fractions_are_refused() {
        assert!(matches!(to_vec(&json!({"a": 0.5})), Err(CanonicalError::Float(_))));
    }
}
