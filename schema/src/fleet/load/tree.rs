//! Which files of a tree are the fleet's: the root file, what it ignores, and what cannot be read.

use std::sync::Arc;

use super::{
    Limits, ParsedFile, about,
    files::{Unparsed, parse_all},
    no_root,
    parses::Parses,
};
use crate::{
    diagnostic::{Diagnostic, codes},
    fleet::{Blob, Sources, Stop, glob, parse::Syntax, sources::SourceBlob},
    letter::hidden,
};

const ROOTS: [&str; 3] = ["fleet.kdl", "fleet.yaml", "fleet.yml"];
const MAX_PATH: usize = 512;
const MAX_COMPONENT: usize = 128;

/// The fleet's files, parsed: the fleet file, then the others by path. Empty when there is no fleet to read. `known` is
/// what this answered for the tree before.
pub(super) fn files(
    sources: &Sources,
    limits: Limits,
    known: &[ParsedFile],
    parses: &Parses,
    stop: &Stop<'_>,
    found: &mut Vec<Diagnostic>,
) -> Vec<ParsedFile> {
    let mut roots = sources.iter().filter(|(path, _)| ROOTS.contains(&&***path));
    let Some((root, blob)) = roots.next() else {
        found.push(no_root(sources));
        return Vec::new();
    };
    if let Some((second, _)) = roots.next() {
        found.push(about(second, codes::SECOND_ROOT, format!("{root} is there too: a fleet has one fleet file")));
        return Vec::new();
    }
    let Some(bytes) = bytes(root, blob, found) else { return Vec::new() };
    let syntax = Syntax::of(root).expect("the root's names have an ending that is known");
    let file = Unparsed { path: Arc::clone(root), syntax, bytes, root: true };
    let same = known.first().filter(|known| known.path == file.path && known.is_of(&file.bytes)).cloned();
    // What is known of the others holds under the same fleet file, which says what is ignored.
    let mut known = if same.is_some() { known[1..].iter().peekable() } else { [].iter().peekable() };
    let mut all = vec![same.clone()];
    let mut fresh = Vec::new();
    let top = match same {
        Some(file) => file,
        None => {
            let parsed = parse_all(&[file], parses, stop).pop().expect("as many files come back as are given");
            all[0] = Some(parsed.clone());
            parsed
        }
    };
    let mut total = 0_u64;
    for (path, blob) in sources.iter().filter(|(path, _)| *path != root) {
        while known.next_if(|known| known.path < *path).is_some() {}
        let same = match (known.peek(), blob) {
            (Some(known), SourceBlob::Bytes(bytes)) if known.path == *path && known.is_of(bytes) => Some(*known),
            _ => None,
        };
        let file = match same {
            Some(_) => None,
            None if ignored(path, &top.ignore) => continue,
            None => match one(path, blob, root, found) {
                Some((syntax, bytes)) => Some(Unparsed { path: Arc::clone(path), syntax, bytes, root: false }),
                None => continue,
            },
        };
        total += same.map_or_else(|| file.as_ref().map_or(0, |file| file.bytes.len()), |same| same.bytes()) as u64;
        if all.len() > limits.files || total > limits.bytes {
            let message = format!(
                "the tree is too large for one fleet: at most {} files and {} MiB",
                limits.files,
                limits.bytes >> 20
            );
            found.push(about(path, codes::TOO_MANY, message));
            return Vec::new();
        }
        all.push(same.cloned());
        fresh.extend(file);
    }
    let mut parsed = parse_all(&fresh, parses, stop).into_iter();
    all.into_iter().filter_map(|same| same.or_else(|| parsed.next())).collect()
}

/// Whether a path is hidden, or the fleet file lists it under `ignore`.
fn ignored(path: &str, ignore: &[String]) -> bool {
    let hidden = path.split('/').any(|part| part.starts_with('.') && part != "." && part != "..");
    hidden || ignore.iter().any(|pattern| glob::covers(pattern, path))
}

/// The file at a path, when it is the fleet's and can be read.
fn one(path: &Arc<str>, blob: &SourceBlob, root: &str, found: &mut Vec<Diagnostic>) -> Option<(Syntax, Blob)> {
    let syntax = Syntax::of(path);
    let name = path.rsplit('/').next().unwrap_or(path);
    match blob {
        SourceBlob::Submodule => {
            let diagnostic = about(path, codes::SUBMODULE, "a submodule inside the fleet is not read")
                .help("copy its files, or list its path under `ignore` in the fleet file");
            found.push(diagnostic);
            return None;
        }
        // A link without an ending may stand for a folder of fleet files.
        SourceBlob::Symlink if syntax.is_some() || !name.contains('.') => {
            let diagnostic = about(path, codes::SYMLINK, "a symbolic link is not followed")
                .help("put the file itself here, or list its path under `ignore` in the fleet file");
            found.push(diagnostic);
            return None;
        }
        SourceBlob::BadPath => {
            found.push(about(path, codes::BAD_PATH, "the path is not UTF-8"));
            return None;
        }
        SourceBlob::Symlink | SourceBlob::Bytes(_) | SourceBlob::TooLarge { .. } | SourceBlob::Unreadable { .. } => {}
    }
    if name.ends_with(".cedar") {
        return None;
    }
    if path.starts_with("trust/") {
        let message = "the trust policy is judged by `check` and `verify`; a control plane follows it once somebody pins it (better-compute trust pin)";
        if !found.iter().any(|other| other.code == codes::LEFT_ALONE) {
            found.push(about(path, codes::LEFT_ALONE, message));
        }
        return None;
    }
    let syntax = syntax?;
    if let Some(why) = unusable(path) {
        found.push(about(path, codes::BAD_PATH, format!("the path {why}")));
        return None;
    }
    if ROOTS.contains(&name) {
        let diagnostic =
            about(path, codes::SECOND_ROOT, format!("{root} is the fleet file; a second one below it is not read"))
                .help("rename the file, or list its folder under `ignore` in the fleet file");
        found.push(diagnostic);
        return None;
    }
    bytes(path, blob, found).map(|bytes| (syntax, bytes))
}

fn bytes(path: &Arc<str>, blob: &SourceBlob, found: &mut Vec<Diagnostic>) -> Option<Blob> {
    let diagnostic = match blob {
        SourceBlob::Bytes(bytes) if bytes.len() as u64 <= Sources::MAX_FILE_BYTES => return Some(bytes.clone()),
        SourceBlob::Bytes(bytes) => too_large(path, bytes.len() as u64),
        SourceBlob::TooLarge { bytes } => too_large(path, *bytes),
        SourceBlob::Unreadable { reason } => {
            about(path, codes::UNREADABLE, format!("the file cannot be read: {reason}"))
        }
        SourceBlob::Symlink => about(path, codes::SYMLINK, "a symbolic link is not followed"),
        SourceBlob::Submodule => about(path, codes::SUBMODULE, "a submodule is not read"),
        SourceBlob::BadPath => about(path, codes::BAD_PATH, "the path is not UTF-8"),
    };
    found.push(diagnostic);
    None
}

fn too_large(path: &Arc<str>, bytes: u64) -> Diagnostic {
    let most = Sources::MAX_FILE_BYTES >> 10;
    about(
        path,
        codes::FILE_TOO_LARGE,
        format!("the file has {} KiB, and at most {most} KiB are read", bytes.div_ceil(1024)),
    )
    .help("spread the objects over several files")
}

fn unusable(path: &str) -> Option<&'static str> {
    if path.len() > MAX_PATH {
        return Some("is longer than 512 bytes");
    }
    if path.chars().any(|letter| letter.is_control() || letter == '\\' || hidden(letter)) {
        return Some("holds a character that nobody sees, or a backslash");
    }
    if path.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return Some("is not a plain path below the root");
    }
    path.split('/').any(|part| part.len() > MAX_COMPONENT).then_some("has a component of more than 128 bytes")
}
