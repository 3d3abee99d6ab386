//! Findings as workflow commands, which GitHub turns into annotations on the changed lines. Pure.

use schema::diagnostic::{Diagnostic, Severity};

/// One workflow command per finding, what weighs most first: only so many are shown.
#[must_use]
pub(super) fn annotations(diagnostics: &[Diagnostic]) -> String {
    let line = |diagnostic: &&Diagnostic| {
        let command = match diagnostic.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "notice",
        };
        let mut message = diagnostic.message.clone();
        if let Some(help) = &diagnostic.help {
            message.push_str("\nhelp: ");
            message.push_str(help);
        }
        format!(
            "::{command} file={},line={},col={},title={}::{}",
            property(&diagnostic.file),
            diagnostic.span.line,
            diagnostic.span.column,
            property(diagnostic.code.to_string().as_str()),
            data(&message),
        )
    };
    let mut sorted: Vec<&Diagnostic> = diagnostics.iter().collect();
    sorted.sort_by_key(|diagnostic| diagnostic.severity);
    sorted.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::diagnostic::{SourceRef, codes};

    #[test]
    fn an_annotation_is_one_line() {
        let at = SourceRef::start_of("fleet/pools/a,b: 5%.kdl");
        let finding = Diagnostic::new(codes::UNKNOWN_KEY, &at, "unknown key\n\"100%\"").help("write x");
        let note = Diagnostic::new(codes::LEFT_ALONE, &at, "a note: , stays\r");
        let text = annotations(&[note, finding]);
        assert_eq!(
            text,
            "::error file=fleet/pools/a%2Cb%3A 5%25.kdl,line=1,col=1,title=BC0203::unknown key%0A\"100%25\"%0Ahelp: write x\n\
             ::notice file=fleet/pools/a%2Cb%3A 5%25.kdl,line=1,col=1,title=BC0011::a note: , stays%0D"
        );
    }
}
