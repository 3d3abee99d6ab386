//! Names of files and folders that are the same ones on everybody's machine: whoever reviews a commit has what was signed.

use std::collections::{BTreeMap, BTreeSet};

use schema::fleet::trust;
use unicode_normalization::UnicodeNormalization as _;

use crate::source::git::{GitError, TreeEntry};

/// Whether every name that a folder has newly is told from the others there on every machine: some take letters of both cases for one,
/// and letters that are written in two ways.
pub(super) fn apart(olds: &[TreeEntry], news: &[TreeEntry], above: &str) -> Result<(), GitError> {
    let known: BTreeSet<&[u8]> = olds.iter().map(|entry| entry.name.as_slice()).collect();
    let is_new = |entry: &TreeEntry| !known.contains(entry.name.as_slice());
    let mut names: BTreeMap<String, &TreeEntry> = BTreeMap::new();
    for entry in news {
        let Ok(name) = std::str::from_utf8(&entry.name) else { continue };
        let Some(other) = names.insert(folded(name), entry) else { continue };
        if is_new(entry) || is_new(other) {
            let [one, two] = [other, entry].map(|entry| entry.name.escape_ascii().to_string());
            let place = if above.is_empty() { "one folder" } else { above };
            return Err(GitError::Unfit(format!(
                "{place} has {one:?} and {two:?}, which are one name on some machines"
            )));
        }
    }
    Ok(())
}

/// A name without what some machines do not see of it: the case of its letters, and how these are put together.
fn folded(name: &str) -> String {
    if name.is_ascii() {
        return name.to_ascii_lowercase();
    }
    // Upper and then lower case: what has no small letter of its own folds as well.
    let apart: String = name.nfd().collect();
    apart.to_uppercase().to_lowercase().nfd().collect()
}

/// A file or a folder under a name that is the same one on everybody's machine. Only what is new has to be.
pub(super) fn plain(entry: &TreeEntry, above: &str) -> Result<(), GitError> {
    let shown = entry.name.escape_ascii().to_string();
    let unfit = |what: &str| Err(GitError::Unfit(format!("{shown:?} {what}")));
    match entry.mode.value() {
        0o100_644 | 0o100_755 | 0o040_000 => {}
        0o120_000 => return unfit("is a symbolic link"),
        0o160_000 => return unfit("is a submodule"),
        odd => return unfit(&format!("has the mode {odd:o}, which git writes for nothing")),
    }
    let Ok(name) = std::str::from_utf8(&entry.name) else { return unfit("is not UTF-8") };
    if name.chars().any(|letter| {
        letter == '\\'
            || letter == ':'
            || matches!(letter, '\u{200c}' | '\u{200d}')
            || pki::trust::commit::hidden(letter)
            || letter.is_control()
    }) {
        return unfit("has a character that is not seen, or means something elsewhere");
    }
    if name.ends_with(['.', ' ']) {
        return unfit("ends in a dot or a space, which some machines leave out");
    }
    // Upper and then lower case: what has no small letter of its own folds as well.
    let folded = name.to_uppercase().to_lowercase();
    let device = folded.split('.').next().unwrap_or_default();
    if [".git", "conin$", "conout$"].contains(&&*folded) || short(&folded, ".git") || is_device(device) {
        return unfit("is another name on some machines");
    }
    if above.is_empty() && name != trust::FOLDER && (folded == trust::FOLDER || short(&folded, trust::FOLDER)) {
        return unfit("is the folder of trust on some machines");
    }
    Ok(())
}

/// Whether a name is what Windows may call a longer one in short.
fn short(folded: &str, long: &str) -> bool {
    let long = long.trim_start_matches('.');
    folded.split_once('~').is_some_and(|(stem, number)| {
        !stem.is_empty() && long.starts_with(stem) && number.starts_with(|digit: char| digit.is_ascii_digit())
    })
}

/// Whether Windows takes a name for a device.
fn is_device(name: &str) -> bool {
    let numbered = ["com", "lpt"].iter().filter_map(|kind| name.strip_prefix(kind)).next();
    ["con", "prn", "aux", "nul"].contains(&name)
        || numbered
            .is_some_and(|number| number.len() == 1 && number.starts_with(|digit: char| ('1'..='9').contains(&digit)))
}
