//! How an error is told with its causes: each error says its own level only, and the edge that handles it prints the chain.

use std::error::Error;

/// An error and its causes on one line, without a cause that is already said.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open the door")]
    struct Door(#[source] Key);

    #[derive(Debug, thiserror::Error)]
    #[error(transparent)]
    struct Key(#[from] std::fmt::Error);

    #[test]
    fn each_cause_is_said_once() {
        let text = chain(&Door(Key(std::fmt::Error)));
        assert_eq!(text, format!("cannot open the door: {}", std::fmt::Error));
    }
}
