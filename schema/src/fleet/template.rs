//! Templates: minijinja with everything bounded. Rendering is a pure function of the texts and the values; there is no
//! environment, clock, network or file to reach.

mod flat;

use std::{borrow::Cow, collections::BTreeSet, io, ops::Range};

use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value, filters,
    syntax::SyntaxConfig,
    value::{Rest, ValueKind, ValueOrKwargs},
};

use crate::diagnostic::{Code, codes};

/// What one rendering may take: one for each instruction, and one for every 64 bytes that it writes or makes on the way, so
/// that the values in between are bounded too, at 3 MiB together.
const FUEL: u64 = 50_000;
/// Includes, macros and loops that may nest.
const RECURSION: usize = 32;
/// Bytes of one tag.
const TAG: usize = 4096;
/// Branches that the `if`s of a template may have besides the first.
const BRANCHES: usize = 100;
/// Stack on which templates are parsed and rendered: enough for what these bounds allow.
pub(super) const STACK: usize = 64 << 20;
/// Bytes that one rendering may write.
const OUTPUT: usize = 1 << 20;

/// What is wrong in a template, and where in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RenderError {
    pub(super) code: Code,
    /// The template it is in, which may be an included one.
    pub(super) template: String,
    pub(super) line: usize,
    pub(super) range: Option<Range<usize>>,
    pub(super) message: String,
}

impl RenderError {
    /// The system has no room for the stack that templates need.
    pub(super) fn no_room() -> Self {
        let message = "there is no room to render templates".to_owned();
        Self { code: codes::TEMPLATE_LIMIT, template: String::new(), line: 1, range: None, message }
    }
}

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
            guard(name, text)?;
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

/// Refuses what the template parser would recurse on: its stack grows with the operators of one tag and with the
/// branches of one `if`.
fn guard(name: &str, text: &str) -> Result<(), RenderError> {
    let refuse = |at: usize, what: &str| RenderError {
        code: codes::TEMPLATE_LIMIT,
        template: name.to_owned(),
        line: text[..at].matches('\n').count() + 1,
        range: Some(at..at + 2),
        message: what.to_owned(),
    };
    let bytes = text.as_bytes();
    let (mut at, mut branches) = (0, 0);
    while at + 1 < bytes.len() {
        let start = at;
        let end: &[u8] = match &bytes[at..at + 2] {
            b"{{" => b"}}",
            b"{%" => b"%}",
            b"{#" => b"#}",
            _ => {
                at += 1;
                continue;
            }
        };
        at = tag_end(bytes, at + 2, end);
        if end == b"#}" {
            continue;
        }
        if at - start > TAG {
            return Err(refuse(start, "this tag is longer than 4096 bytes"));
        }
        if let Some(times) = operator(&bytes[start..at], b'*') {
            let instead = "templates do not multiply with `*`, which repeats lists too; write VALUE|times(2), which takes numbers";
            return Err(refuse(start + times, instead));
        }
        if let Some(plus) = sum(&bytes[start..at]) {
            let instead = "`+` adds a whole number that is written beside it; write VALUE|plus(OTHER) for other numbers, and A ~ B for texts";
            return Err(refuse(start + plus, instead));
        }
        let inside = text.get(start + 2..at).unwrap_or("").trim_start_matches(['-', '+']).trim_start();
        branches += usize::from(inside.starts_with("elif"));
        if branches > BRANCHES {
            return Err(refuse(start, "the template has more than 100 elif"));
        }
        if end == b"%}" && inside.trim_end_matches(['%', '}', '-', '+']).trim_end() == "raw" {
            let raw = text[at..].match_indices("{%").find(|(index, _)| {
                text[at + index + 2..].trim_start_matches(['-', '+']).trim_start().starts_with("endraw")
            });
            at = raw.map_or(bytes.len(), |(index, _)| at + index);
        }
    }
    Ok(())
}

/// The byte after the end of a tag whose inside begins at `at`; texts inside it hide an end.
fn tag_end(bytes: &[u8], mut at: usize, end: &[u8]) -> usize {
    let mut quote = None;
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if open == byte => quote = None,
            (None, byte @ (b'"' | b'\'')) if end != b"#}" => quote = Some(byte),
            (None, _) if bytes[at..].starts_with(end) => return at + 2,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// Where an operator stands in a tag, outside of its texts.
fn operator(tag: &[u8], operator: u8) -> Option<usize> {
    let mut quote = None;
    let mut at = 0;
    while at < tag.len() {
        match (quote, tag[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if open == byte => quote = None,
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            (None, byte) if byte == operator => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

/// Where a tag adds what need not be numbers: lists that are put together are not accounted for. One of the two is a whole
/// number that is written there and of which nothing more is asked.
fn sum(tag: &[u8]) -> Option<usize> {
    let inner = tag.get(2..tag.len().saturating_sub(2))?;
    let mut from = 0;
    while let Some(index) = operator(&inner[from..], b'+') {
        let at = from + index;
        let (before, after) = (inner[..at].trim_ascii_end(), inner[at + 1..].trim_ascii_start());
        let word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
        let left = &before[before.iter().rposition(|byte| !word(byte)).map_or(0, |end| end + 1)..];
        let right = &after[..after.iter().position(|byte| !word(byte)).unwrap_or(after.len())];
        let rest = after[right.len()..].trim_ascii_start();
        let number = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_digit);
        let asked = matches!(rest.first(), Some(b'|' | b'[' | b'('));
        // A mark at the edge of a tag says what becomes of the white space around it.
        let edge = before.is_empty() || after.is_empty();
        if !edge && !number(left) && (!number(right) || asked) {
            return Some(2 + at);
        }
        from = at + 1;
    }
    None
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

fn innermost(error: &Error) -> &Error {
    let mut inner = error;
    let mut source = std::error::Error::source(error);
    while let Some(next) = source {
        if let Some(found) = next.downcast_ref::<Error>() {
            inner = found;
        }
        source = next.source();
    }
    inner
}

fn describe(error: &Error, name: &str, text: &str) -> RenderError {
    let detail = error.detail().map_or(Cow::Borrowed(""), Cow::Borrowed);
    let quoted = error
        .range()
        .and_then(|range| text.get(range))
        .map(str::trim)
        .filter(|text| !text.is_empty() && text.len() <= 80);
    let (code, message) = match error.kind() {
        ErrorKind::SyntaxError => (codes::TEMPLATE_SYNTAX, format!("not a valid template: {detail}")),
        ErrorKind::UndefinedError => match quoted {
            Some(expression) => (codes::TEMPLATE_UNDEFINED, format!("`{expression}` does not exist")),
            None => (codes::TEMPLATE_UNDEFINED, format!("the template uses a value that does not exist: {detail}")),
        },
        ErrorKind::OutOfFuel => {
            (codes::TEMPLATE_LIMIT, "the template takes too many steps or makes too much text".to_owned())
        }
        ErrorKind::InvalidOperation
            if detail.contains("recursion") || detail.contains("too large") || detail.contains("limit") =>
        {
            (codes::TEMPLATE_LIMIT, format!("the template does too much: {detail}"))
        }
        // Literal paths were looked at before.
        ErrorKind::TemplateNotFound => {
            (codes::TEMPLATE_MISSING, "another template is named by its literal path, and this is a value".to_owned())
        }
        ErrorKind::UnknownFilter | ErrorKind::UnknownTest | ErrorKind::UnknownFunction | ErrorKind::UnknownMethod => {
            (codes::TEMPLATE_FAILED, format!("the template uses what does not exist: {detail}"))
        }
        kind if detail.is_empty() => (codes::TEMPLATE_FAILED, format!("the template cannot be rendered: {kind}")),
        _ => (codes::TEMPLATE_FAILED, format!("the template cannot be rendered: {detail}")),
    };
    RenderError {
        code,
        template: error.name().unwrap_or(name).to_owned(),
        line: error.line().unwrap_or(1),
        range: error.range(),
        message,
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::stack;

    fn render(text: &str) -> Result<String, RenderError> {
        let values =
            Value::from(minijinja::value::Serde(serde_json::json!({"node": {"name": "n1", "labels": {"a": "b"}}})));
        stack::on(STACK, || Renderer::new([("t.j2", text)])?.render("t.j2", &values)).expect("room for a thread")
    }

    #[test]
    fn numbers_are_multiplied_and_lists_are_not_repeated() {
        assert_eq!(render("{{ 6|times(7) }} {{ '2*3' }} {# 2 * 3 #}").as_deref(), Ok("42 2*3 "));
        for text in ["{{ [1] * 100000000 }}", "{% if 2 in [1]*90000000 %}x{% endif %}", "{{ 2 ** 40 }}"] {
            let error = render(text).expect_err("refused");
            assert_eq!(error.code, codes::TEMPLATE_LIMIT, "{text}");
            assert!(error.message.contains("times("), "{}", error.message);
        }
    }

    #[test]
    fn numbers_are_added_and_lists_are_not() {
        let sums = "{{ 1 + 2 }}{% set n = 1 %}{{ n + 1 }}{{ 1+n }}{{ n|plus(n) }}{{ '+' ~ 'a+b' }}{%+ if n + 1 > 1 +%}x{% endif %}";
        assert_eq!(render(sums).as_deref(), Ok("3222+a+bx"));
        for text in
            ["{{ x + x }}", "{{ x + 1|list }}", "{{ x.1 + x }}", "{{ [1] + [1] }}", "{{ 'a' + x }}", "{{ x + 1[0] }}"]
        {
            let error = render(text).expect_err("refused");
            assert_eq!(error.code, codes::TEMPLATE_LIMIT, "{text}");
            assert!(error.message.contains("plus("), "{}", error.message);
        }
    }

    #[test]
    fn lines_stay_as_they_are_and_tags_leave_none() {
        assert_eq!(
            render("a {{ node.name }}\n{% if true %}\nb < \"c\"\n{% endif %}\n"),
            Ok("a n1\nb < \"c\"\n".to_owned())
        );
    }

    #[test]
    fn what_a_value_says_is_text_and_never_a_template() {
        let said = "{{ node.name }}{% if 1 %}";
        let text = format!("{{% set s = '{said}' %}}{{{{ s }}}}|{{{{ s|replace('name', 'name') }}}}");
        assert_eq!(render(&text), Ok(format!("{said}|{said}")));
    }

    #[test]
    fn what_does_not_exist_is_an_error_with_its_place() {
        let error = render("ok\nx {{ node.labels.role }}\n").expect_err("undefined");
        assert_eq!((error.code, error.line), (codes::TEMPLATE_UNDEFINED, 2));
        assert!(error.message.contains("node.labels.role"), "{}", error.message);
        assert_eq!(render("{{ node.labels.role | default('x') }}"), Ok("x".to_owned()));
    }

    #[test]
    fn bombs_are_stopped() {
        for text in [
            "{% for a in range(10000) %}{% for b in range(10000) %}x{% endfor %}{% endfor %}",
            "{% set s = 'aaaaaaaaaaaaaaaa' %}{% for a in range(100) %}{% set s = s ~ s %}{{ s }}{% endfor %}{{ 'a' * 1000000000 }}",
            "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
            "{% include 't.j2' %}",
        ] {
            assert!(render(text).is_err(), "{text}");
        }
        let braces = "{% if 0 %}".to_owned() + &"{% elif 0 %}".repeat(50_000) + "{% endif %}";
        for text in
            ["not ", "1 ~ ", "-", "1 if 1 else ", "'}}' ~ "].map(|text| format!("{{{{ {}1 }}}}", text.repeat(50_000)))
        {
            assert_eq!(render(&text).map_err(|error| error.code), Err(codes::TEMPLATE_LIMIT));
        }
        assert_eq!(render(&braces).map_err(|error| error.code), Err(codes::TEMPLATE_LIMIT));
        assert!(render("{% raw %}{{ '{% endraw %} {{ node.name }}").is_ok());
        let deep = format!("{}1{}", "{{ ".to_owned() + &"(".repeat(1000), ")".repeat(1000) + " }}");
        assert_eq!(render(&deep).map_err(|error| error.code), Err(codes::TEMPLATE_SYNTAX));
    }

    /// Whatever could double what there is, and whatever makes much of little.
    #[test]
    fn the_memory_of_values_in_between_is_bounded() {
        let often = |text: &str| text.repeat(40);
        let texts = [
            "{% set s = 'aaaaaaaa' %}".to_owned() + &often("{% set s = s ~ s %}"),
            "{% set s = 'aaaaaaaa' %}".to_owned() + &often("{% set s = s + s %}"),
            "{% set s = 'aaaaaaaa' %}".to_owned() + &often("{% set s %}{{ s }}{{ s }}{% endset %}"),
            "{% set n = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}".to_owned(),
            "{% macro m(s) %}{{ m(s ~ s) }}{% endmacro %}{{ m('aaaaaaaa') }}".to_owned(),
            "{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{{ m(n - 1) }}{% else %}aaaaaaaa{% endif %}{% endmacro %}{% set s = m(30) %}".to_owned(),
            "{% set s = 'aaaaaaaa' %}".to_owned() + &often("{% set s = s|replace('a', 'aa') %}"),
            "{% set s = 'aaaaaaaa' %}".to_owned() + &often("{% set s = [s, s]|join(s) %}"),
            "{% set s = 'x'|indent(1000000000) %}{{ 'a\\nb'|indent(1000000000) }}".to_owned(),
            "{{ '%1000000000d'|format(1) }}".to_owned(),
            "{% set s = range(5000)|join('%(a)s') %}{{ s|format(a=range(100000)|join)|length }}".to_owned(),
            "{{ [1]|batch(1000000000, 1)|list|length }}".to_owned(),
            "{{ [1]|slice(1000000000, 1)|list|length }}".to_owned(),
            "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}".to_owned(),
            "{{ range(100000)|list|map('string')|join('aaaaaaaaaaaaaaaa')|length }}".to_owned(),
            "{% set x = [1, 1] %}".to_owned() + &often("{% set x = [x, x] %}") + "{{ x }}",
            "{% set x = [1, 1] %}".to_owned() + &often("{% set x = [x, x] %}") + "{% set s = x|json %}",
            "{% set s = 'a' %}".to_owned() + &often("{% set s = s|escape ~ s|upper %}"),
            "{% set x = [1, 1] %}".to_owned() + &often("{% set x = x + x %}") + "{{ x|length }}{{ x|join }}",
        ];
        for text in &texts {
            let error = render(text).expect_err(text);
            assert_eq!(error.code, codes::TEMPLATE_LIMIT, "{text}: {error:?}");
        }
    }

    #[test]
    fn nothing_outside_is_reachable() {
        for text in ["{{ debug() }}", "{% include '/etc/passwd' %}", "{{ env.HOME }}", "{{ now() }}"] {
            assert!(render(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_a_template_reads_is_found_where_it_stands() {
        let text = "site.name {{ site.name }}\n{% if pool.labels.fabric == 'x' %}{{ node.name | upper }}{% endif %}{% set a = 1 %}{{ a }}";
        let found = stack::on(STACK, || reads("t.j2", text)).expect("room for a thread");
        let found: Vec<_> = found.iter().map(|(value, range)| (value.as_str(), range.start)).collect();
        assert_eq!(found, [("site.name", 13), ("pool.labels.fabric", 32), ("node.name", 63)]);
    }

    #[test]
    fn literal_includes_are_found() {
        let text =
            "{% include 'a.j2' %}{%- import \"b.j2\" as b %}{% if 'c.j2' %}{% endif %}{% from 'd.j2' import x %}";
        assert_eq!(includes(text), BTreeSet::from(["a.j2", "b.j2", "d.j2"]));
    }
}
