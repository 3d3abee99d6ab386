//! What editors ask for: completion, hover, definitions and formatting. `None` is the protocol's null.

use schema::{
    fleet::{
        self, Cursor, Place, cursor,
        reference::{self, Key, Takes},
    },
    object::{Kind, ObjectRef},
};
use serde_json::{Value, json};

use super::{
    text,
    workspace::{File, Workspace},
};

/// The protocol's numbers of what an item is.
const CLASS: u8 = 7;
const FIELD: u8 = 5;
const VALUE: u8 = 12;
const REFERENCE: u8 = 18;

fn at(workspace: &Workspace, params: &Value) -> Option<(Cursor, String, String, std::path::PathBuf)> {
    let File { root, path, text } = workspace.file(params)?;
    let cursor = cursor(&path, &text, text::offset(&text, &params["position"]))?;
    Some((cursor, text, path, root.to_owned()))
}

/// Words that may stand at the cursor.
pub(super) fn completion(workspace: &Workspace, params: &Value) -> Option<Value> {
    let (cursor, text, path, root) = at(workspace, params)?;
    let yaml = !path.ends_with(".kdl");
    let range = text::range(&text, cursor.word.start, cursor.word.end);
    let item = |label: &str, insert: String, kind: u8, detail: String, doc: &str| {
        json!({
            "label": label,
            "kind": kind,
            "detail": detail,
            "documentation": doc,
            "textEdit": { "range": range, "newText": insert },
        })
    };
    let mut items = Vec::new();
    let kinds = |items: &mut Vec<Value>| {
        for kind in reference::kinds() {
            let word = kind.kind.as_str();
            items.push(item(word, word.to_owned(), CLASS, "kind".to_owned(), &kind.doc));
        }
    };
    let keys = |ending: &str, items: &mut Vec<Value>| {
        for key in cursor.keys().iter().filter(|key| key.takes != Takes::Later) {
            items.push(item(key.key, format!("{}{ending}", key.key), FIELD, key.takes.in_words(), &key.doc));
        }
    };
    let values = |key: &'static Key, items: &mut Vec<Value>| {
        let (_, takes) = key.lone();
        let written = |word: &str| if yaml || cursor.quoted { word.to_owned() } else { format!("\"{word}\"") };
        let mut add = |word: &str, kind: u8| {
            items.push(item(word, written(word), kind, takes.in_words(), &key.doc));
        };
        match takes {
            Takes::Words(words) => words.iter().for_each(|word| add(word, VALUE)),
            Takes::Reference(kind) => {
                let objects = workspace.objects(&root);
                let names = objects.iter().filter(|(_, object)| object.kind == *kind);
                names.for_each(|(_, object)| add(&object.name, REFERENCE));
            }
            Takes::Address(kinds) => {
                let objects = workspace.objects(&root);
                let named = objects.iter().filter(|(_, object)| kinds.contains(&object.kind));
                named.for_each(|(_, object)| add(&format!("{}/{}", object.kind, object.name), REFERENCE));
            }
            Takes::Boolean => {
                for word in ["true", "false"] {
                    let insert = if yaml { word.to_owned() } else { format!("#{word}") };
                    items.push(item(word, insert, VALUE, takes.in_words(), &key.doc));
                }
            }
            _ => {}
        }
    };
    match &cursor.place {
        Place::Nothing => {}
        Place::Key if cursor.path.is_empty() && !yaml => kinds(&mut items),
        Place::Key if cursor.path.is_empty() => {
            items.push(item("kind", "kind: ".to_owned(), FIELD, "word".to_owned(), "What the object is."));
        }
        Place::Key => {
            if yaml && cursor.path.len() == 1 {
                items.push(item("name", "name: ".to_owned(), FIELD, "name".to_owned(), "The object's name."));
            }
            keys(if yaml { ": " } else { " " }, &mut items);
        }
        Place::Value(word) if word == "kind" && yaml && cursor.path.len() <= 1 => kinds(&mut items),
        Place::Value(_) => cursor.key(&text).into_iter().for_each(|key| values(key, &mut items)),
        Place::Either(word) => {
            let key = cursor.key(&text);
            key.into_iter().for_each(|key| values(key, &mut items));
            let inner = if cursor.path.is_empty() && !yaml {
                word.parse::<Kind>().map(|kind| reference::kind(kind).keys.as_slice()).unwrap_or_default()
            } else {
                key.map(Key::keys).unwrap_or_default()
            };
            for key in inner.iter().filter(|key| !cursor.quoted && key.takes != Takes::Later) {
                let ending = if yaml { ": " } else { "=" };
                items.push(item(key.key, format!("{}{ending}", key.key), FIELD, key.takes.in_words(), &key.doc));
            }
        }
    }
    Some(json!({ "isIncomplete": false, "items": items }))
}

/// What the word at the cursor means.
pub(super) fn hover(workspace: &Workspace, params: &Value) -> Option<Value> {
    let (cursor, text, _, _) = at(workspace, params)?;
    let word = text.get(cursor.word.clone())?;
    let kind = match &cursor.place {
        Place::Key if cursor.path.is_empty() => word.parse::<Kind>().ok(),
        Place::Value(key) if key == "kind" => word.parse::<Kind>().ok(),
        _ => None,
    };
    let says = match (kind, cursor.key(&text)) {
        (Some(kind), _) => format!("**{kind}**\n\n{}", reference::kind(kind).doc),
        (None, Some(key)) => {
            let required = if key.required { ", must be there" } else { "" };
            format!("**{}**: {}{required}\n\n{}", key.key, key.takes.in_words(), key.doc)
        }
        (None, None) => return None,
    };
    let range = text::range(&text, cursor.word.start, cursor.word.end);
    Some(json!({ "contents": { "kind": "markdown", "value": says }, "range": range }))
}

/// Where the object or template that the cursor names is written.
pub(super) fn definition(workspace: &Workspace, params: &Value) -> Option<Value> {
    let (cursor, text, _, root) = at(workspace, params)?;
    let word = text.get(cursor.word.clone())?.trim_matches('"');
    let removed = cursor.path.is_empty() && cursor.place == Place::Either("removed".to_owned());
    let key = cursor.key(&text);
    if key.is_some_and(|key| matches!(key.key, "template" | "policy")) {
        let uri = text::uri(&root.join(word)).filter(|_| workspace.has(&root, word))?;
        return Some(json!({ "uri": uri, "range": text::range("", 0, 0) }));
    }
    let (kind, name) = match key.map(|key| key.lone().1) {
        Some(Takes::Reference(kind)) => (*kind, word.to_owned()),
        Some(Takes::Address(_)) => address(word)?,
        None if removed => address(word)?,
        _ => return None,
    };
    let objects = workspace.objects(&root);
    let (path, object) = objects.into_iter().find(|(_, object)| object.kind == kind && object.name == name)?;
    let range = text::range(&workspace.text(&root, &path)?, object.at.start as usize, object.at.end as usize);
    Some(json!({ "uri": text::uri(&root.join(&*path))?, "range": range }))
}

fn address(word: &str) -> Option<(Kind, String)> {
    let object: ObjectRef = word.parse().ok()?;
    Some((object.kind, object.name.to_string()))
}

/// The whole text in the style; nothing for YAML and for a text with an error.
pub(super) fn formatting(workspace: &Workspace, params: &Value) -> Option<Value> {
    let File { path, text, .. } = workspace.file(params)?;
    if !path.ends_with(".kdl") {
        return None;
    }
    let formatted = String::from_utf8(fleet::format(text.as_bytes()).ok()?).ok()?;
    if formatted == text {
        return Some(json!([]));
    }
    Some(json!([{ "range": text::range(&text, 0, text.len()), "newText": formatted }]))
}
