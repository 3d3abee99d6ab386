//! Values and fields in words: never raw JSON.

use serde_json::Value;

use super::{
    lines::{self, Room},
    page::{Ink, Line},
    quiet::{around, quiet, whole},
};
use crate::plan::FieldChange;

/// The widest column of paths.
const PATHS: usize = 44;

/// A value as a person would write it: `1GiB`, `"two words"`, `iommu=pt, quiet`, `size 1GiB, count 64`.
pub(in crate::plan) fn said(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) if text.is_empty() || text.chars().any(char::is_whitespace) => {
            format!("\"{}\"", quiet(text))
        }
        Value::String(text) => quiet(text),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(nested).collect::<Vec<_>>().join(", "),
        Value::Object(members) if members.is_empty() => "none".to_owned(),
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| format!("{} {}", quiet(key), nested(value)))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

fn nested(value: &Value) -> String {
    match value {
        Value::Array(items) if items.len() > 1 => format!("({})", said(value)),
        Value::Object(members) if members.len() > 1 => format!("({})", said(value)),
        _ => said(value),
    }
}

/// Fields that differ, at most `room.most` of them before the rest is counted.
pub(in crate::plan) fn fields(fields: &[&FieldChange], room: Room) -> Vec<Line> {
    let spread: Vec<FieldChange> = fields.iter().flat_map(|field| spread(field)).collect();
    let fields: Vec<&FieldChange> = spread.iter().collect();
    let named = if fields.len() > room.most.saturating_add(2) { room.most.max(1) } else { fields.len() };
    let width = fields[..named].iter().filter(|field| on_one_line(field)).map(|field| path(field).chars().count());
    let width = width.max().unwrap_or(0).min(PATHS);
    let mut out: Vec<Line> = fields[..named].iter().flat_map(|change| field(change, width, room)).collect();
    if fields.len() > named {
        out.push(Line::new(room.indent).with(Ink::Dim, &format!("and {} more fields", fields.len() - named)));
    }
    out
}

/// A field that goes with texts of many lines in it, such as certificates, is told member by member: those are shown as lines.
fn spread(field: &FieldChange) -> Vec<FieldChange> {
    match (&field.before, &field.after) {
        (Some(before @ Value::Object(members)), None) if holds_lines(before) => {
            let one = |(key, value): (&String, &Value)| {
                let path = if field.path.is_empty() { key.clone() } else { format!("{}.{key}", field.path) };
                spread(&FieldChange { path, before: Some(value.clone()), after: None, place: field.place.clone() })
            };
            members.iter().flat_map(one).collect()
        }
        _ => vec![field.clone()],
    }
}

fn holds_lines(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.values().any(|value| has_lines(Some(value)) || holds_lines(value)),
        _ => false,
    }
}

fn path(field: &FieldChange) -> String {
    if field.path.is_empty() { "everything".to_owned() } else { quiet(&field.path) }
}

fn has_lines(value: Option<&Value>) -> bool {
    matches!(value, Some(Value::String(text)) if text.contains('\n'))
}

fn has_items(value: Option<&Value>) -> bool {
    matches!(value, Some(Value::Array(items)) if items.len() > 1 || items.iter().any(Value::is_object))
}

fn on_one_line(field: &FieldChange) -> bool {
    ![field.before.as_ref(), field.after.as_ref()].into_iter().any(|value| has_lines(value) || has_items(value))
}

fn field(field: &FieldChange, width: usize, room: Room) -> Vec<Line> {
    let (before, after) = (field.before.as_ref(), field.after.as_ref());
    let placed = |line: Line| match &field.place {
        Some(place) => line.with(Ink::Dim, &format!("  {place}")),
        None => line,
    };
    let space = room.width.saturating_sub(room.indent + width + 8).max(24);
    if on_one_line(field) && fits(before, after, space) {
        let line = Line::new(room.indent).with(Ink::Plain, &path(field)).column(width + 2);
        return vec![placed(change(line, before, after, room.differs()))];
    }
    let head = placed(Line::new(room.indent).with(Ink::Plain, &path(field)));
    let inner = Room { indent: room.indent + 2, width: room.width.saturating_sub(room.indent + 4), ..room };
    let rest = if has_lines(before) || has_lines(after) {
        let text = |value: Option<&Value>| match value {
            Some(Value::String(text)) => text.clone(),
            Some(other) => said(other),
            None => String::new(),
        };
        lines::text(&text(before), &text(after), inner)
    } else {
        let items = |value: Option<&Value>| match value {
            Some(Value::Array(items)) => items.iter().map(said).collect(),
            Some(other) => vec![said(other)],
            None => Vec::new(),
        };
        let (before, after): (Vec<String>, Vec<String>) = (items(before), items(after));
        let sorted = |list: &[String]| {
            let mut list = list.to_vec();
            list.sort_unstable();
            list
        };
        if sorted(&before) == sorted(&after) {
            let space = inner.width.saturating_sub(19).max(24);
            let (_, order) = around(&before.join(", "), &after.join(", "), space, room.differs());
            vec![Line::new(inner.indent).with(Ink::Attention, &format!("the order changes: {order}"))]
        } else {
            lines::items(&before, &after, inner)
        }
    };
    std::iter::once(head).chain(rest).collect()
}

/// Whether two values stand beside each other; longer ones stand below each other, so that the eye finds what differs.
fn fits(before: Option<&Value>, after: Option<&Value>, space: usize) -> bool {
    let long = |value: &Value| said(value).chars().count() > space / 2;
    ![before, after].iter().flatten().any(|value| long(value)) || before.is_none() || after.is_none()
}

fn change(line: Line, before: Option<&Value>, after: Option<&Value>, most: usize) -> Line {
    let words = |value: &Value| whole(&said(value), most);
    match (before, after) {
        (Some(before), Some(after)) => {
            line.with(Ink::Bad, &words(before)).with(Ink::Plain, " → ").with(Ink::Good, &words(after))
        }
        (None, Some(after)) => line.with(Ink::Good, &format!("+ {}", words(after))),
        (Some(before), None) => line.with(Ink::Bad, &format!("- {}", words(before))),
        (None, None) => line,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::diff;

    fn page(before: &Value, after: &Value) -> String {
        let changes = diff(before, after);
        let room = Room { indent: 0, most: 12, width: 80 };
        let lines = fields(&changes.iter().collect::<Vec<_>>(), room);
        lines.iter().map(|line| line.terminal(false)).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn nested_values_are_words() {
        let before = json!({
            "hugepages": [{"size": "1GiB", "count": 16}],
            "kernel": {"args": ["quiet"], "modules": []},
            "on": false, "text": "two words", "gone": {"a": 1, "b": [1, 2]}, "motd": "a\nb\n",
        });
        let after = json!({
            "hugepages": [{"size": "1GiB", "count": 64}, {"size": "2MiB", "count": 512}],
            "kernel": {"args": ["quiet", "iommu=pt"], "modules": ["nvidia"]},
            "on": true, "text": "", "motd": "a\nc\n",
        });
        let page = page(&before, &after);
        assert!(!page.contains(['{', '}', '"', ':']) || page.contains("\"two words\""), "{page}");
        insta::assert_snapshot!(page);
    }

    #[test]
    fn certificates_that_go_with_their_field_are_lines() {
        let roots = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
        let page = page(&json!({"attest": {"x509": {"only": ["a.*"], "roots": roots}}}), &json!({}));
        assert_eq!(
            page,
            "attest.x509.only  - a.*\nattest.x509.roots\n  - -----BEGIN CERTIFICATE-----\n  - MIIB\n  - -----END CERTIFICATE-----"
        );
    }

    #[test]
    fn a_list_in_another_order_is_no_other_list() {
        let page = page(&json!({"args": ["quiet", "iommu=pt"]}), &json!({"args": ["iommu=pt", "quiet"]}));
        assert_eq!(page, "args\n  the order changes: iommu=pt, quiet");
    }

    #[test]
    fn a_text_that_steers_is_written_out() {
        assert_eq!(page(&json!({"a": "x"}), &json!({"a": "\u{1b}[2J\u{202e}"})), "a  x → \\u{1b}[2J\\u{202e}");
    }
}
