//! Templates: minijinja with everything bounded. Rendering is a pure function of the texts and the values; there is no
//! environment, clock, network or file to reach.

mod error;
mod flat;
mod guard;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, io, ops::Range};

use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value, filters,
    syntax::SyntaxConfig,
    value::{Rest, ValueKind, ValueOrKwargs},
};

use crate::diagnostic::codes;
use error::{describe, innermost};

pub(super) use error::RenderError;

/// What one rendering may take: one for each instruction, and one for every 64 bytes that it writes or makes on the way, so
/// that the values in between are bounded too, at 3 MiB together.
const FUEL: u64 = 50_000;
/// Includes, macros and loops that may nest.
const RECURSION: usize = 32;
/// Stack on which templates are parsed and rendered: enough for what these bounds allow.
pub(super) const STACK: usize = 64 << 20;
/// Bytes that one rendering may write.
const OUTPUT: usize = 1 << 20;

/// Templates that were parsed.
pub(super) struct Renderer<'t> {
    environment: Environment<'t>,
}

impl<'t> Renderer<'t> {
    /// Parses templates.
    pub(super) fn new(templates: impl IntoIterator<Item = (&'t str, &'t str)>) -> Result<Self, RenderError> {
        let mut environment = Environment::new();
        // Lines are kept as they are, nothing is escaped, and what does not exist is an error.
        let syntax = SyntaxConfig::builder().keep_trailing_newline(true).trim_blocks(true).lstrip_blocks(true).build();
        let syntax = syntax.expect("the default delimiters are valid");
        environment.set_syntax(syntax.clone());
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(RECURSION);
        environment.set_debug(false);
        environment.remove_global("debug");
        environment.add_filter("times", |value: i64, factor: i64| {
            let product = value.checked_mul(factor);
            product.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "the product does not fit 64 bits"))
        });
        environment.add_filter("plus", |value: i64, other: i64| {
            let sum = value.checked_add(other);
            sum.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "the sum does not fit 64 bits"))
        });
        environment.add_filter("json", json);
        environment.add_filter("format", format);
        for filter in flat::NESTING {
            environment.remove_filter(filter);
        }
        let mut renderer = Self { environment };
        for (name, text) in templates {
            guard::check(name, text)?;
            flat::check(name, text, syntax.clone()).map_err(|(range, message)| RenderError {
                code: codes::TEMPLATE_LIMIT,
                template: name.to_owned(),
                line: text[..range.start].matches('\n').count() + 1,
                range: Some(range),
                message,
            })?;
            renderer.environment.add_template(name, text).map_err(|error| describe(&error, name, text))?;
        }
        Ok(renderer)
    }

    /// Renders one template.
    pub(super) fn render(&self, name: &str, values: &Value) -> Result<String, RenderError> {
        let missing = |error: &Error| describe(error, name, "");
        let template = self.environment.get_template(name).map_err(|error| missing(&error))?;
        let mut output = Bounded::default();
        match template.render_captured_to(values, &mut output) {
            Ok(_) if output.bytes.contains(&0) => Err(RenderError {
                code: codes::TEMPLATE_FAILED,
                template: name.to_owned(),
                line: 1,
                range: None,
                message: "the template writes a NUL character, and a file of a fleet is text".to_owned(),
            }),
            Ok(_) => Ok(String::from_utf8(output.bytes).expect("templates write text")),
            Err(error) => {
                let inner = innermost(&error);
                let within = inner.name().unwrap_or(name);
                let text = self.environment.get_template(within).ok().map(|template| template.source().to_owned());
                let mut found = describe(inner, name, text.as_deref().unwrap_or(""));
                if output.full {
                    found.code = codes::TEMPLATE_LIMIT;
                    found.message = format!("the template writes more than {} KiB", OUTPUT >> 10);
                }
                Err(found)
            }
        }
    }

    /// The names that a template takes from outside.
    pub(super) fn inputs(&self, name: &str) -> BTreeSet<String> {
        let template = self.environment.get_template(name);
        template.map(|template| template.undeclared_variables(false).into_iter().collect()).unwrap_or_default()
    }
}

/// The built-in `format`, which writes an argument as often as the text names it and pays for that only afterwards.
fn format(state: &mut State<'_, '_>, text: &Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let mut longest = 0;
    for argument in args.iter() {
        let named = argument.kind() == ValueKind::Map;
        let values = if named {
            argument.try_iter()?.map(|key| argument.get_item(&key)).collect()
        } else {
            vec![Ok((**argument).clone())]
        };
        for value in values {
            let value = value?;
            if value.as_object().is_some() {
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    "format takes texts and numbers; write VALUE|string",
                ));
            }
            longest = value.as_str().map_or(0, str::len).max(longest);
        }
    }
    let marks = text.as_str().map_or(0, |text| text.matches('%').count());
    state.consume_fuel((marks.saturating_mul(longest) / 64) as u64)?;
    filters::format(state, text, args)
}

/// A value as JSON. A list can hold another one many times, so that what is written is bounded while it is.
fn json(value: &Value) -> Result<String, Error> {
    let mut written = Bounded::default();
    match serde_json::to_writer(&mut written, value) {
        Ok(()) => Ok(String::from_utf8(written.bytes).expect("JSON is text")),
        Err(_) if written.full => Err(Error::from(ErrorKind::OutOfFuel)),
        Err(_) => Err(Error::new(ErrorKind::BadSerialization, "the value has no JSON")),
    }
}

/// The values from outside that a template reads, with the places where it names them. What it includes is not looked at.
pub(super) fn reads(name: &str, text: &str) -> Vec<(String, Range<usize>)> {
    let renderer = Renderer::new([(name, text)]).ok();
    let template = renderer.as_ref().and_then(|renderer| renderer.environment.get_template(name).ok());
    let named = template.map(|template| template.undeclared_variables(true)).unwrap_or_default();
    let part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    for value in named {
        for (start, _) in text.match_indices(&value) {
            let range = start..start + value.len();
            if !part(bytes.get(start.wrapping_sub(1))) && !part(bytes.get(range.end)) && in_tag(text, start) {
                found.push((value.clone(), range));
            }
        }
    }
    found.sort_by_key(|(_, range)| range.start);
    found
}

/// Whether a place is inside a tag that is evaluated.
fn in_tag(text: &str, at: usize) -> bool {
    let before = &text[..at];
    let open = before.rfind("{{").max(before.rfind("{%"));
    open.is_some_and(|open| !before[open..].contains("}}") && !before[open..].contains("%}"))
}

/// The templates that a text includes, imports or extends by a literal name.
pub(super) fn includes(text: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for tag in text.split("{%").skip(1) {
        let tag = tag.split("%}").next().unwrap_or("");
        let word = tag.trim_start_matches(['-', '+']).trim_start();
        if !["include", "import", "from", "extends"].iter().any(|keyword| word.starts_with(keyword)) {
            continue;
        }
        for quote in ['"', '\''] {
            names.extend(word.split(quote).skip(1).step_by(2));
        }
    }
    names
}

/// A writer that refuses to grow beyond its bound.
#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
    full: bool,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > OUTPUT {
            self.full = true;
            return Err(io::Error::other("the output is full"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
