//! A working tree as [`Sources`]: what `check` looks at. No git is needed, and no link is followed.

use std::{
    fs,
    io::Read as _,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use reconciler::source::Kept;
use schema::fleet::{SourceBlob, Sources};

use crate::exit::{During as _, Exit, Failure};

const ROOT_FILES: [&str; 3] = ["fleet.kdl", "fleet.yaml", "fleet.yml"];

/// The root of the fleet that is meant: the named directory, else the nearest one from here upwards with a `fleet.kdl`.
///
/// # Errors
/// When the named directory is not one, or none is found.
pub fn root(named: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = named {
        if !path.exists() {
            return Err(Failure::usage(format!("there is no {}", path.display())));
        }
        if !path.is_dir() {
            return Err(Failure::usage(format!("{} is a file, and a fleet is a directory", path.display())));
        }
        return Ok(path.to_owned());
    }
    let here = std::env::current_dir().during("cannot tell the current directory")?;
    let found = here.ancestors().find(|dir| ROOT_FILES.iter().any(|name| dir.join(name).is_file()));
    found.map(Path::to_owned).ok_or_else(|| {
        Failure::new(Exit::InvalidFleet, format!("no fleet.kdl (or fleet.yaml) in {} or above it", here.display()))
            .hint("go to a fleet repository, or name its directory")
    })
}

/// Parses of a fleet that is large enough for it to matter.
const WORTH_KEEPING: usize = 100;

/// What commands that run once remember of large fleets, in the user's cache directory when there is one.
#[must_use]
pub fn kept() -> Kept {
    let from_environment = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = from_environment("XDG_CACHE_HOME").or_else(|| from_environment("HOME").map(|home| home.join(".cache")));
    cache.map_or_else(Kept::default, |cache| Kept::at(&cache.join("better-compute")).at_least(WORTH_KEEPING))
}

/// The fleet file of a directory, when it has one.
#[must_use]
pub fn root_file(dir: &Path) -> Option<PathBuf> {
    ROOT_FILES.iter().map(|name| dir.join(name)).find(|file| file.is_file())
}

/// Everything below a directory that the language may look at.
///
/// # Errors
/// When the directory itself cannot be listed. What is wrong further down becomes a diagnostic.
pub fn read(root: &Path) -> Result<Sources, Failure> {
    let mut sources = Sources::default();
    let entries = fs::read_dir(root).during(format!("cannot read {}", root.display()))?;
    walk(entries, "", &mut sources);
    Ok(sources)
}

fn walk(entries: fs::ReadDir, below: &str, sources: &mut Sources) {
    let mut found: Vec<fs::DirEntry> = entries.filter_map(Result::ok).collect();
    found.sort_by_key(fs::DirEntry::file_name);
    for entry in found {
        let name = entry.file_name();
        if name.as_bytes().first() == Some(&b'.') {
            continue;
        }
        let Some(name) = name.to_str() else {
            let path = [below.as_bytes(), name.as_bytes()].concat();
            sources.insert_raw(&path, SourceBlob::BadPath);
            continue;
        };
        let path = format!("{below}{name}");
        match entry.file_type() {
            Ok(kind) if kind.is_symlink() => sources.insert(path, SourceBlob::Symlink),
            Ok(kind) if kind.is_dir() => directory(&entry.path(), path, sources),
            Ok(kind) if kind.is_file() && Sources::wants(&path) => sources.insert(path, file(&entry.path())),
            Ok(_) => {}
            Err(error) => sources.insert(path, SourceBlob::Unreadable { reason: error.to_string() }),
        }
    }
}

fn directory(at: &Path, path: String, sources: &mut Sources) {
    if at.join(".git").exists() {
        return sources.insert(path, SourceBlob::Submodule);
    }
    match fs::read_dir(at) {
        Ok(entries) => walk(entries, &format!("{path}/"), sources),
        Err(error) => sources.insert(path, SourceBlob::Unreadable { reason: error.to_string() }),
    }
}

fn file(at: &Path) -> SourceBlob {
    let read = || -> std::io::Result<SourceBlob> {
        let file = fs::File::open(at)?;
        let bytes = file.metadata()?.len();
        if bytes > Sources::MAX_FILE_BYTES {
            return Ok(SourceBlob::TooLarge { bytes });
        }
        let mut content = Vec::new();
        file.take(Sources::MAX_FILE_BYTES + 1).read_to_end(&mut content)?;
        Ok(SourceBlob::Bytes(content.into()))
    };
    read().unwrap_or_else(|error| SourceBlob::Unreadable { reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_named_and_never_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("fleet.kdl"), "x").unwrap();
        fs::write(dir.path().join("notes.txt"), "x").unwrap();
        fs::create_dir_all(dir.path().join(".git")).unwrap();
        fs::write(dir.path().join(".git/config.yaml"), "x").unwrap();
        fs::create_dir_all(dir.path().join("vendor/.git")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link.kdl")).unwrap();
        fs::write(dir.path().join("big.kdl"), vec![b' '; 1024 * 1024 + 1]).unwrap();
        let sources = read(dir.path()).unwrap();
        let found: Vec<(String, String)> = sources
            .iter()
            .map(|(path, blob)| {
                let kind = match blob {
                    SourceBlob::Bytes(_) => "bytes",
                    SourceBlob::Symlink => "link",
                    SourceBlob::Submodule => "submodule",
                    SourceBlob::TooLarge { .. } => "large",
                    SourceBlob::Unreadable { .. } => "unreadable",
                    SourceBlob::BadPath => "path",
                };
                (path.to_string(), kind.to_owned())
            })
            .collect();
        let want = [("big.kdl", "large"), ("fleet.kdl", "bytes"), ("link.kdl", "link"), ("vendor", "submodule")];
        assert_eq!(found, want.map(|(path, kind)| (path.to_owned(), kind.to_owned())));
    }
}
