//! What is wrong in a template, in the words of the fleet language.

use std::{borrow::Cow, ops::Range};

use minijinja::{Error, ErrorKind};

use crate::diagnostic::{Code, codes};

/// What is wrong in a template, and where in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::fleet) struct RenderError {
    pub(in crate::fleet) code: Code,
    /// The template it is in, which may be an included one.
    pub(in crate::fleet) template: String,
    pub(in crate::fleet) line: usize,
    pub(in crate::fleet) range: Option<Range<usize>>,
    pub(in crate::fleet) message: String,
}

impl RenderError {
    /// The system has no room for the stack that templates need.
    pub(in crate::fleet) fn no_room() -> Self {
        let message = "there is no room to render templates".to_owned();
        Self { code: codes::TEMPLATE_LIMIT, template: String::new(), line: 1, range: None, message }
    }
}

/// The template's own error below those of the templates around it.
pub(super) fn innermost(error: &Error) -> &Error {
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

/// An error of the engine while template `name` is parsed or rendered; `text` is that of the template it is in.
pub(super) fn describe(error: &Error, name: &str, text: &str) -> RenderError {
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
