//! The cursor in KDL: the tokens before it say which blocks are open and what the node has so far.

use super::{Cursor, Place};
use crate::fleet::format::lex::{Token, tokens};

/// A node that is being written.
#[derive(Debug, Default)]
struct Node {
    name: Option<String>,
    /// The key of a property whose value is next.
    property: Option<String>,
    /// The last bare word, which `=` would make a key.
    last: Option<String>,
}

pub(super) fn cursor(text: &str, at: usize) -> Cursor {
    let mut path = Vec::new();
    let mut node = Node::default();
    let mut begin = at;
    let (mut quoted, mut open) = (false, false);
    let mut offset = 0;
    for (token, written) in tokens(&text[..at]) {
        let start = offset;
        offset += written.len();
        let last = offset == at;
        match token {
            Token::Blank | Token::Continuation | Token::Slashdash | Token::Comment => {}
            Token::LineComment if last => return nothing(at),
            Token::LineComment => {}
            Token::Newline => node = Node::default(),
            Token::Mark(b';') => node = Node::default(),
            Token::Mark(b'{') => {
                path.push(node.name.take().unwrap_or_default());
                node = Node::default();
            }
            Token::Mark(b'}') => {
                path.pop();
                node = Node { name: Some(String::new()), ..Node::default() };
            }
            Token::Mark(b'=') => node.property = node.last.take(),
            Token::Mark(_) => {}
            // A quote that nothing closes before the cursor: the cursor is in that text.
            Token::Word if written.trim_start_matches('#') == "\"" => {
                (begin, quoted, open) = (offset, true, true);
                break;
            }
            Token::Word | Token::Quoted if last && !written.ends_with('"') => begin = start,
            Token::Word | Token::Quoted | Token::Lines => {
                let value = written.trim_matches(['"', '#']).to_owned();
                if node.name.is_none() {
                    node.name = Some(value);
                } else if node.property.take().is_none() {
                    node.last = Some(value);
                }
            }
        }
    }
    if open && text[begin..at].contains('\n') {
        return nothing(at);
    }
    let rest = &text[at..];
    let ends = |letter: char| {
        if quoted { matches!(letter, '"' | '\n') } else { letter.is_whitespace() || "\"{}();=".contains(letter) }
    };
    let end = at + rest.find(ends).unwrap_or(rest.len());
    let place = match (node.name, node.property) {
        (None, _) => Place::Key,
        (Some(name), Some(property)) => {
            path.push(name);
            Place::Value(property)
        }
        (Some(name), None) if text[end..].starts_with('=') && !quoted => {
            path.push(name);
            Place::Key
        }
        (Some(name), None) => Place::Either(name),
    };
    Cursor { path, place, word: begin..end, quoted }
}

fn nothing(at: usize) -> Cursor {
    Cursor { path: Vec::new(), place: Place::Nothing, word: at..at, quoted: false }
}
