//! A document for people: indented `key: value` lines, without braces and quotes, times as people read them.

use schema::time::{Moment, Timestamp};
use serde_json::Value;

use super::{Output, text::printable};

impl Output {
    /// The document, so many steps to the right. What is longer than a line goes on below, one step further.
    #[must_use]
    pub fn outline(&self, document: &Value, depth: usize) -> String {
        let mut lines = Vec::new();
        self.write(document, depth, &mut lines);
        lines.join("\n")
    }

    fn write(&self, value: &Value, depth: usize, lines: &mut Vec<String>) {
        let indent = "  ".repeat(depth);
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    if is_leaf(value) {
                        lines.push(self.line_of(&indent, &format!("{}: {}", printable(key), self.leaf(value))));
                    } else {
                        lines.push(format!("{indent}{}:", printable(key)));
                        self.write(value, depth + 1, lines);
                    }
                }
            }
            Value::Array(items) => {
                for item in items {
                    if is_leaf(item) {
                        lines.push(self.line_of(&indent, &format!("- {}", self.leaf(item))));
                        continue;
                    }
                    let from = lines.len();
                    self.write(item, depth + 1, lines);
                    if let Some(first) = lines.get_mut(from) {
                        *first = format!("{indent}- {}", first.trim_start());
                    }
                }
            }
            leaf => lines.push(self.line_of(&indent, &self.leaf(leaf))),
        }
    }

    fn line_of(&self, indent: &str, text: &str) -> String {
        let fits = self.width.is_none_or(|width| indent.len() + text.chars().count() <= width);
        if fits { format!("{indent}{text}") } else { self.hanging(text, indent) }
    }

    fn leaf(&self, value: &Value) -> String {
        match value {
            Value::String(text) => match text.parse::<Timestamp>() {
                Ok(at) if text.ends_with('Z') => format!("{} ({})", Moment(at), self.ago(at)),
                _ => printable(text),
            },
            Value::Null => "-".to_owned(),
            Value::Array(_) | Value::Object(_) => "none".to_owned(),
            other => other.to_string(),
        }
    }
}

fn is_leaf(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::Format;

    #[test]
    fn a_document_reads_as_an_outline_that_fits() {
        let output = Output {
            format: Format::Text,
            colour: false,
            width: Some(40),
            now: "2026-11-29T12:10:00Z".parse().unwrap(),
        };
        let document = json!({
            "name": "fra1-r12", "labels": {}, "holds": [{ "source": "git", "reason": "fan 3 does not turn and nobody is there" }, { "source": "api" }],
            "since": "2026-11-29T12:04:05.123456789Z", "observed": 3, "why": null,
        });
        let text = output.outline(&document, 0);
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        insta::assert_snapshot!(text);
    }
}
