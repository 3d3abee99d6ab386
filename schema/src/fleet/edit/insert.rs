//! Adding a key to a block: as its last one, in the way the block is written.

use super::{EditError, NewValue, kdl, means, read, splice, yaml};
use crate::{
    diagnostic::Span,
    fleet::{
        doc::{Arg, Entry, Form, Object},
        format::lex::{Token, tokens},
        parse::Syntax,
    },
};

/// The file with a key added to the block at a place, which is that of the block's name or key. As with
/// [`replace`](super::replace), every other byte stays, and what was written is read back.
///
/// # Errors
/// When the file cannot be read, has no block at that place, has that key in it, or cannot hold the value there.
pub fn insert(path: &str, file: &[u8], block: Span, key: &str, value: &NewValue) -> Result<Vec<u8>, EditError> {
    let syntax = Syntax::of(path).filter(|syntax| *syntax != Syntax::Template);
    let syntax = syntax.ok_or_else(|| EditError::Syntax(path.chars().take(200).collect()))?;
    let before = read(file, syntax)?;
    let text = before.text.to_string();
    let not_here = || EditError::NotHere { line: block.line, column: block.column };
    let candidates = match syntax {
        Syntax::Kdl => in_kdl(&text, block, key, value),
        Syntax::Yaml | Syntax::Template => in_yaml(&text, &before.objects, block, key, value),
    };
    for (at, written, form) in candidates.ok_or_else(not_here)? {
        let mut objects = before.objects.to_vec();
        let fields = fields_at(&mut objects, block).ok_or_else(not_here)?;
        if fields.iter().any(|field| field.key == key) {
            return Err(not_here());
        }
        let arg = Arg { value: value.scalar(), span: Span::START };
        let entry = Entry { key: key.to_owned(), span: Span::START, args: vec![arg], fields: Vec::new(), form };
        fields.push(entry);
        let edited = splice(file, &text, at..at, &written);
        if means(&edited, syntax, &objects) {
            return Ok(edited);
        }
    }
    Err(EditError::Unwritable)
}

/// The keys of the object or block whose name or key is at a place.
fn fields_at(objects: &mut [Object], at: Span) -> Option<&mut Vec<Entry>> {
    objects.iter_mut().find_map(|object| {
        let own = object.span == at || object.name.as_ref().is_some_and(|name| name.span == at);
        if own { Some(&mut object.fields) } else { fields_in(&mut object.fields, at) }
    })
}

fn fields_in(entries: &mut [Entry], at: Span) -> Option<&mut Vec<Entry>> {
    entries.iter_mut().find_map(|entry| {
        let named = matches!(entry.form, Form::Item { .. })
            && entry.fields.iter().any(|field| field.args.iter().any(|arg| arg.span == at));
        let lone = entry.form == Form::Single || entry.form == Form::List;
        let own = entry.span == at || entry.args.first().is_some_and(|arg| arg.span == at);
        if (own && !lone) || named { Some(&mut entry.fields) } else { fields_in(&mut entry.fields, at) }
    })
}

type Candidates = Vec<(usize, String, Form)>;

fn in_kdl(text: &str, block: Span, key: &str, value: &NewValue) -> Option<Candidates> {
    let start = block.start as usize;
    let key = if kdl::bare(key) { key.to_owned() } else { kdl::quoted(key) };
    let mut offset = 0;
    let (mut end, mut slashed, mut joined) = (start, false, false);
    let (mut depth, mut open) = (0_usize, None);
    for (token, written) in tokens(text) {
        let at = offset;
        offset += written.len();
        if at < start {
            continue;
        }
        match token {
            Token::Newline if depth == 0 && !joined => break,
            Token::Newline => joined = false,
            Token::Continuation => joined = true,
            Token::Slashdash => slashed = depth == 0,
            Token::Mark(b';') if depth == 0 => break,
            Token::Mark(b'}') if depth == 0 => break,
            Token::Mark(b'{') => {
                if depth == 0 && !slashed {
                    open = Some(offset);
                }
                depth += 1;
            }
            Token::Mark(b'}') => {
                depth -= 1;
                if depth == 0 && std::mem::take(&mut slashed) {
                    end = offset;
                } else if let Some(open) = open.filter(|_| depth == 0) {
                    return Some(in_braces(text, open, at, &key, value));
                }
            }
            Token::Word | Token::Quoted | Token::Lines | Token::Mark(_) if depth == 0 => {
                (end, slashed) = (offset, false)
            }
            _ => {}
        }
    }
    let indent = format!("{}  ", super::indentation(text, start));
    let values = kdl::fresh(value, &indent).into_iter();
    Some(values.map(|value| (end, format!(" {key}={value}"), Form::Single)).collect())
}

/// Between an opening brace and the closing one.
fn in_braces(text: &str, open: usize, close: usize, key: &str, value: &NewValue) -> Candidates {
    let begin = text[..close].rfind('\n').map_or(0, |index| index + 1);
    let lead = &text[begin..close];
    if begin > open && lead.trim().is_empty() {
        let inner = text[open..begin].lines().skip(1).find(|line| !line.trim().is_empty());
        let inner = inner.map(|line| &line[..line.len() - line.trim_start().len()]);
        let inner = inner.filter(|inner| inner.len() > lead.len()).map_or_else(|| format!("{lead}  "), str::to_owned);
        let values = kdl::fresh(value, &format!("{inner}  ")).into_iter();
        return values.map(|value| (begin, format!("{inner}{key} {value}\n"), Form::Node)).collect();
    }
    let inside = text[open..close].trim_end();
    let at = open + inside.len();
    let blank = if close > at { "" } else { " " };
    let parted = if inside.trim().is_empty() { " " } else { "; " };
    kdl::fresh(value, "").into_iter().map(|value| (at, format!("{parted}{key} {value}{blank}"), Form::Node)).collect()
}

fn in_yaml(text: &str, objects: &[Object], block: Span, key: &str, value: &NewValue) -> Option<Candidates> {
    let mut objects = objects.to_vec();
    let fields = fields_at(&mut objects, block)?;
    let first = fields.first()?;
    let depth = first.span.column as usize - 1;
    let key = yaml::scalar_text(key);
    // A mapping in braces ends where they do.
    let before = text[..first.span.start as usize].trim_end_matches([' ', '\n']);
    if before.ends_with(['{', ',']) {
        let last = fields.last().and_then(|field| field.args.last())?;
        let at = last.span.end as usize;
        return Some(
            yaml::fresh(value, None).into_iter().map(|value| (at, format!(", {key}: {value}"), Form::Single)).collect(),
        );
    }
    let from = text[..first.span.start as usize].rfind('\n').map_or(0, |index| index + 1);
    let (mut at, mut end) = (from, from);
    // An object's kind and name are keys of it too, and stand outside of its fields.
    for line in text[from..].split_inclusive('\n') {
        let bare = line.trim_end_matches('\n');
        let blank = bare.trim().is_empty() || bare.trim_start().starts_with('#');
        let deep = bare.len() - bare.trim_start_matches(' ').len();
        if at > from && !blank && (deep < depth || bare.starts_with("---") || bare.starts_with("...")) {
            break;
        }
        at += line.len();
        if !blank || deep > depth {
            end = at - (line.len() - bare.len());
        }
    }
    let lead = " ".repeat(depth);
    // Behind what keeps its empty lines the key comes after them.
    let behind = |value: &String| (at, format!("{lead}{key}: {value}\n"), Form::Single);
    let values = yaml::fresh(value, Some(depth));
    let close = values.iter().map(|value| (end, format!("\n{lead}{key}: {value}"), Form::Single));
    Some(close.chain(values.iter().map(behind)).collect())
}
