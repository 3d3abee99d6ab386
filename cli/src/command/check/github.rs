//! Findings as workflow commands, which GitHub turns into annotations on the changed lines. Pure.

use schema::diagnostic::{Diagnostic, Severity};

/// One workflow command per finding. `prefix` is the fleet's folder within the repository.
#[must_use]
pub(super) fn annotations(diagnostics: &[Diagnostic], prefix: &str) -> String {
    let line = |diagnostic: &Diagnostic| {
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
            property(&below(prefix, &diagnostic.file)),
            diagnostic.span.line,
            diagnostic.span.column,
            diagnostic.code,
            data(&message),
        )
    };
    diagnostics.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A file's path within the repository.
#[must_use]
pub(super) fn below(prefix: &str, file: &str) -> String {
    let prefix = prefix.trim_start_matches("./").trim_end_matches('/');
    if prefix.is_empty() || prefix == "." { file.to_owned() } else { format!("{prefix}/{file}") }
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
        let at = SourceRef::start_of("pools/a,b.kdl");
        let finding = Diagnostic::new(codes::UNKNOWN_KEY, &at, "unknown key\n\"100%\"").help("write x");
        let text = annotations(&[finding], "./fleet/");
        assert_eq!(
            text,
            "::error file=fleet/pools/a%2Cb.kdl,line=1,col=1,title=BC0203::unknown key%0A\"100%25\"%0Ahelp: write x"
        );
    }
}
