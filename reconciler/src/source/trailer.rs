//! The trailer `bc-plan: sha256:…` of a commit: which plan was shown before the commit was made.

use schema::digest::Digest;

/// The key, as git compares keys: without regard to case.
const KEY: &str = "bc-plan";

/// The plan that a commit message names: in its last paragraph, which is not its first, exactly once, exactly a digest.
/// Anything else names none: nothing is bound by a guess.
pub(super) fn plan_of(message: &str) -> Option<Digest> {
    let text = message.replace("\r\n", "\n");
    let mut paragraphs = text.trim().split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty());
    paragraphs.next()?;
    let last = paragraphs.last()?;
    let mut values = last.lines().filter_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.trim_end().eq_ignore_ascii_case(KEY).then(|| value.trim())
    });
    let value = values.next()?;
    if values.next().is_some() { None } else { value.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn the_last_paragraph_names_a_plan() {
        let wanted: Digest = format!("sha256:{HEX}").parse().expect("a digest");
        for message in [
            format!("change\n\nbc-plan: sha256:{HEX}\n"),
            format!("change\n\nwhy\n\nSigned-off-by: Ada <a@b>\nBC-Plan: sha256:{HEX}\nReviewed-by: Grace <g@b>\n"),
            format!("change\r\n\r\nbc-plan: sha256:{HEX}\r\n"),
        ] {
            assert_eq!(plan_of(&message), Some(wanted), "{message:?}");
        }
    }

    #[test]
    fn anything_else_names_none() {
        for message in [
            String::new(),
            "change".to_owned(),
            format!("bc-plan: sha256:{HEX}"),
            format!("change\nbc-plan: sha256:{HEX}"),
            format!("change\n\nbc-plan: sha256:{HEX}\n\nlast words"),
            format!("change\n\nbc-plan: sha256:{HEX}\nbc-plan: sha256:{HEX}"),
            format!("change\n\nbc-plan: {HEX}"),
            format!("change\n\nbc-plan: sha256:{}", HEX.to_uppercase().replace('A', "g")),
            format!("change\n\nbc-plan: sha256:{}", &HEX[..40]),
            format!("change\n\nno-bc-plan: sha256:{HEX}"),
            format!("change\n\nbc-plan: sha256:{HEX} sha256:{HEX}"),
        ] {
            assert_eq!(plan_of(&message), None, "{message:?}");
        }
    }
}
