//! The probe's tokeniser: letter by letter, each token a text of its own, done [`PASSES`] times, which makes it one of
//! about 30 MB/s on the machine on which the targets were set.

/// How often a text is gone through.
const PASSES: usize = 4;

/// Splits a text into words, quoted texts and marks; answers how many.
pub(crate) fn count(text: &str) -> usize {
    (0..PASSES).map(|_| tokens(text).len()).sum()
}

fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut token = String::new();
    let mut quoted = false;
    for letter in text.chars() {
        if quoted {
            token.push(letter);
            quoted = letter != '"';
        } else if letter.is_whitespace() {
            if !token.is_empty() {
                tokens.push(std::mem::take(&mut token));
            }
        } else if matches!(letter, '{' | '}' | '=' | ';' | '"') {
            if !token.is_empty() {
                tokens.push(std::mem::take(&mut token));
            }
            quoted = letter == '"';
            token.push(letter);
        } else {
            token.push(letter);
        }
    }
    tokens.push(token);
    tokens
}
