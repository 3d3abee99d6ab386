//! Where PostgreSQL's programs are.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::EmbeddedError;

/// The oldest major version that the statements need.
const OLDEST: u32 = 15;

/// Names the directory of the server's programs, and nothing else is looked at then.
const OVERRIDE: &str = "BETTER_COMPUTE_PG_BINDIR";

/// A directory with a server's programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Binaries {
    pub(super) dir: PathBuf,
    pub(super) major: u32,
}

/// The highest usable version, or the one that made the data in `data_dir`.
pub(super) fn find(data_dir: &Path) -> Result<Binaries, EmbeddedError> {
    let places = places();
    let mut by_major: BTreeMap<u32, PathBuf> = BTreeMap::new();
    for dir in &places {
        if let Some(major) = major(dir)
            && major >= OLDEST
        {
            by_major.entry(major).or_insert_with(|| dir.clone());
        }
    }
    let Some((highest, dir)) = by_major.last_key_value() else {
        let looked: Vec<String> = places.iter().map(|dir| dir.display().to_string()).collect();
        let looked = if looked.is_empty() {
            "/usr/lib/postgresql, /usr/pgsql-* and PATH have none".to_owned()
        } else {
            format!("looked in {}", looked.join(", "))
        };
        return Err(EmbeddedError::NotFound { looked });
    };
    let Some(data) = data_major(data_dir) else {
        return Ok(Binaries { dir: dir.clone(), major: *highest });
    };
    by_major.get(&data).map(|dir| Binaries { dir: dir.clone(), major: data }).ok_or_else(|| EmbeddedError::OtherMajor {
        dir: data_dir.display().to_string(),
        data,
        found: by_major.keys().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    })
}

/// The major version that made a data directory; `None` when there is no data.
fn data_major(data_dir: &Path) -> Option<u32> {
    std::fs::read_to_string(data_dir.join("PG_VERSION")).ok()?.trim().parse().ok()
}

fn places() -> Vec<PathBuf> {
    if let Some(dir) = std::env::var_os(OVERRIDE) {
        return vec![dir.into()];
    }
    let below = |root: &str, matches: fn(&str) -> bool| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_name().to_str().is_some_and(matches))
            .map(|entry| entry.path().join("bin"))
            .collect()
    };
    let mut places = below("/usr/lib/postgresql", |name| name.bytes().all(|byte| byte.is_ascii_digit()));
    places.extend(below("/usr", |name| name.starts_with("pgsql-")));
    for dir in std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()) {
        // A link in PATH leads to the directory that also has initdb.
        if let Ok(program) = dir.join("postgres").canonicalize()
            && let Some(dir) = program.parent()
        {
            places.push(dir.to_owned());
        }
    }
    places.retain(|dir| dir.join("postgres").exists() && dir.join("initdb").exists());
    places
}

fn major(dir: &Path) -> Option<u32> {
    let output =
        Command::new(dir.join("postgres")).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}
