//! `check`: every mistake in a working tree, offline.

mod github;
mod sarif;
mod trust;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::{Args, ValueEnum};
use schema::{
    diagnostic::{self, Diagnostic, render::Colour},
    fleet::{Fleet, Loaded},
};

use self::trust::{Behind, with_trust};
use super::plan::Trees;
use crate::{
    exit::{Exit, Failure},
    output::{Output, text::count},
    tree,
};

const EXAMPLES: &str = "\
Examples:
  better-compute check                           the fleet around here
  better-compute check examples-fleet
  better-compute check fleet-a fleet-b           several fleets, one exit code
  better-compute check --format github           annotations on a pull request
  better-compute check --format sarif > out.sarif
  better-compute check --head origin/main        a commit, without a look at the working tree

Exits with 0 when there is no error and with 3 when there is one; warnings and notes change nothing. `better-compute explain BC0203` says more about a code.";

/// Look for mistakes in a fleet repository.
///
/// Reads every file below the directory that holds `fleet.kdl` and reports every mistake at once, with its place and help. A
/// path inside a fleet stands for the whole fleet, because a mistake in one file shows in another. Neither git nor a control plane is needed; with --head a commit is read from git's objects, and where a tree holds no trust policy the commits behind it are looked at.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Check {
    /// Directories that hold fleet.kdl, or paths inside of one; found from here upwards when none is named
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Commit, branch or tag to check, instead of the working tree
    #[arg(long, value_name = "COMMIT")]
    pub head: Option<String>,
    /// Repository, bare or with a working tree, that the commit is in
    #[arg(long, value_name = "DIR", requires = "head")]
    pub repo: Option<PathBuf>,
    /// Folder of the repository that holds the fleet
    #[arg(long, value_name = "FOLDER", requires = "head")]
    pub path: Option<String>,
    /// How findings are written
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: CheckFormat,
}

/// How findings are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum CheckFormat {
    /// For people, with source lines and carets
    #[default]
    Text,
    /// For programs
    Json,
    /// Annotations that GitHub shows on a pull request
    Github,
    /// SARIF 2.1.0, for code-scanning tools
    Sarif,
}

impl Check {
    /// Checks, and says what was found.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let trees = self.trees()?;
        match self.format {
            CheckFormat::Text => {
                for tree in &trees {
                    if trees.len() > 1 {
                        output.line(format!("{}:", tree.shown))?;
                    }
                    output.line(in_words(&tree.loaded, output.colour))?;
                }
            }
            CheckFormat::Json => {
                let prefix = |tree: &Tree| if trees.len() > 1 { tree.shown.clone() } else { String::new() };
                let found: Vec<Diagnostic> = trees.iter().flat_map(|tree| tree.findings(&prefix(tree))).collect();
                output.json(&diagnostic::json::to_value(&found))?;
            }
            CheckFormat::Github => {
                let found: Vec<Diagnostic> = trees.iter().flat_map(|tree| tree.findings(&tree.folder)).collect();
                if !found.is_empty() {
                    output.line(github::annotations(&found))?;
                }
            }
            CheckFormat::Sarif => {
                let found: Vec<Diagnostic> = trees.iter().flat_map(|tree| tree.findings(&tree.folder)).collect();
                output.json(&sarif::log(&found))?;
            }
        }
        let whole = trees.iter().all(|tree| tree.loaded.fleet.is_some());
        Ok(if whole { Exit::Ok } else { Exit::InvalidFleet })
    }

    /// The trees that are meant, each once.
    fn trees(&self) -> Result<Vec<Tree>, Failure> {
        if let Some(head) = &self.head {
            let ([] | [_]) = self.paths.as_slice() else {
                return Err(Failure::usage("with --head there is one fleet to check"));
            };
            let subject = self.paths.first().map(PathBuf::as_path);
            let trees = Trees { subject, repo: self.repo.as_deref(), folder: self.path.as_deref(), base: None };
            let folder = self.path.clone().unwrap_or_default();
            let commit = trees.commit(head)?;
            let dir = self.repo.as_deref().or(subject).map(Path::to_owned);
            let behind = || Behind::of(&dir.map_or_else(|| tree::root(None).ok(), Some)?, self.path.as_deref(), head);
            let loaded = with_trust(commit.loaded, &commit.files, behind);
            return Ok(vec![Tree { loaded, shown: head.clone(), folder }]);
        }
        let mut roots: Vec<PathBuf> = Vec::new();
        for path in &self.paths {
            let root = fleet_around(path)?;
            let same = |other: &PathBuf| other.canonicalize().ok() == root.canonicalize().ok();
            if !roots.iter().any(same) {
                roots.push(root);
            }
        }
        if roots.is_empty() {
            roots.push(tree::root(None)?);
        }
        let read = |root: PathBuf| {
            let files = tree::read(&root)?;
            let loaded = with_trust(tree::kept().load(&files), &files, || Behind::of(&root, None, "HEAD"));
            Ok(Tree { loaded, folder: folder_in_repository(&root), shown: root.display().to_string() })
        };
        roots.into_iter().map(read).collect()
    }
}

/// A tree that was checked.
struct Tree {
    loaded: Loaded,
    /// How a person names it.
    shown: String,
    /// Its folder within the repository.
    folder: String,
}

impl Tree {
    /// The findings, with paths from further up.
    fn findings(&self, prefix: &str) -> Vec<Diagnostic> {
        let place = |file: &str| -> Arc<str> { below(prefix, file).into() };
        let mut found = self.loaded.diagnostics.clone();
        for finding in &mut found {
            finding.file = place(&finding.file);
            finding.labels.iter_mut().for_each(|label| label.at.file = place(&label.at.file));
        }
        found
    }
}

/// The folder of the fleet that a path is in, or the path itself when it is a folder outside of any.
fn fleet_around(path: &Path) -> Result<PathBuf, Failure> {
    if path.is_dir() && tree::root_file(path).is_some() {
        return Ok(path.to_owned());
    }
    let whole = path.canonicalize().map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    let holds = |dir: &&Path| tree::root_file(dir).is_some();
    let root = path.ancestors().skip(1).find(holds).or_else(|| whole.ancestors().skip(1).find(holds));
    match root {
        Some(root) if root.as_os_str().is_empty() => Ok(PathBuf::from(".")),
        Some(root) => Ok(root.to_owned()),
        None => tree::root(Some(path)),
    }
}

/// Where a folder lies in the repository around it, for what is shown beside the changed lines; as it is outside of one.
fn folder_in_repository(root: &Path) -> String {
    let inside = || {
        let whole = root.canonicalize().ok()?;
        let top = whole.ancestors().find(|dir| dir.join(".git").exists())?;
        Some(whole.strip_prefix(top).ok()?.to_str()?.to_owned())
    };
    inside().unwrap_or_else(|| root.display().to_string())
}

/// A file's path from further up.
fn below(prefix: &str, file: &str) -> String {
    let prefix = prefix.trim_start_matches("./").trim_end_matches('/');
    if prefix.is_empty() || prefix == "." { file.to_owned() } else { format!("{prefix}/{file}") }
}

/// Findings for people, and a last line that says what kind of fleet it is.
#[must_use]
pub fn in_words(loaded: &Loaded, colour: bool) -> String {
    let colour = if colour { Colour::Always } else { Colour::Never };
    let findings = diagnostic::render::text(&loaded.diagnostics, &loaded.sources, colour);
    let verdict = loaded.fleet.as_ref().map_or_else(String::new, |fleet| format!("ok: {}", summary(fleet)));
    format!("{findings}{verdict}").trim_end().to_owned()
}

fn summary(fleet: &Fleet) -> String {
    let counts = [
        (fleet.sites.len(), "site"),
        (fleet.pools.len(), "pool"),
        (fleet.profiles.len(), "profile"),
        (fleet.images.len(), "image"),
        (fleet.rollouts.len(), "rollout"),
        (fleet.nodes.len(), "declared node"),
        (fleet.releases.len(), "release"),
        (fleet.tenants.len(), "tenant"),
        (fleet.quotas.len(), "quota"),
        (fleet.access.len(), "access rule"),
        (fleet.batches.len(), "batch document"),
        (fleet.freezes.len(), "freeze"),
        (fleet.moved.len(), "moved line"),
        (fleet.removed.len(), "removed line"),
    ];
    let words: Vec<String> =
        counts.iter().filter(|(number, _)| *number > 0).map(|(number, word)| count(*number as u64, word)).collect();
    format!(
        "fleet {}: {}",
        fleet.document.name,
        if words.is_empty() { "nothing in it".to_owned() } else { words.join(", ") }
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use schema::fleet::{Sources, trust};

    use super::*;

    #[test]
    fn a_path_stands_for_the_fleet_around_it_and_is_placed_in_its_repository() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let fleet = top.join("infra/fleet");
        fs::create_dir_all(fleet.join("pools")).unwrap();
        fs::create_dir_all(top.join(".git")).unwrap();
        fs::write(fleet.join("fleet.kdl"), "").unwrap();
        fs::write(fleet.join("pools/a.kdl"), "").unwrap();
        for inside in [fleet.clone(), fleet.join("pools"), fleet.join("pools/a.kdl")] {
            assert_eq!(fleet_around(&inside).unwrap(), fleet);
        }
        assert_eq!(fleet_around(&top).unwrap(), top);
        assert_eq!(fleet_around(&top.join("none")).unwrap_err().exit, Exit::Usage);
        assert_eq!(folder_in_repository(&fleet), "infra/fleet");
        assert_eq!(below("./a/", "b.kdl"), "a/b.kdl");
    }

    #[test]
    fn a_trust_policy_that_is_refused_makes_a_tree_unfit() {
        let mut files = Sources::default();
        files.insert_file("fleet.kdl", &b"fleet \"acme\" { format 1; trust-domain \"acme.example\"; }\n"[..]);
        let loaded = |files: &Sources| with_trust(schema::fleet::load(files), files, || None);
        assert!(loaded(&files).fleet.is_some());
        files.insert_file(trust::FILE, &b"trust { roles \"admin\"; threshold 0; }\n"[..]);
        let refused = loaded(&files);
        assert!(refused.fleet.is_none());
        let text = in_words(&refused, false);
        assert!(text.contains("threshold 0") && text.contains("trust/policy.kdl:1"), "{text}");
    }

    #[test]
    fn a_release_that_nobody_may_sign_is_told_in_its_place() {
        let policy = |more: &str| {
            let person = pki::batch::testing::Person::new("ada");
            format!(
                "policy {{ format 1; epoch 1; }}\npath \"**\" {{ roles \"admin\"; changes 0; }}\n\
                 trust {{ roles \"admin\"; threshold 1; }}\n\
                 principal \"ada\" {{ kind \"human\"; roles \"admin\"; key \"{}\"; }}\n{more}",
                person.line()
            )
        };
        let digest = schema::digest::Digest::of("bytes");
        let release = format!(
            "release \"bcd\" {{ version \"0.2.0\"; signature \"https://x.example/m\"; \
             artifact \"amd64\" {{ url \"https://x.example/bcd\"; digest \"{digest}\"; }}; }}\n"
        );
        let told = |more: &str| {
            let mut files = Sources::default();
            files.insert_file("fleet.kdl", &b"fleet \"acme\" { format 1; trust-domain \"acme.example\"; }\n"[..]);
            files.insert_file("releases/bcd.kdl", release.as_bytes());
            files.insert_file(trust::FILE, policy(more).as_bytes());
            let loaded = with_trust(schema::fleet::load(&files), &files, || None);
            assert!(loaded.fleet.is_some(), "{}", in_words(&loaded, false));
            in_words(&loaded, false)
        };
        let text = told("");
        assert!(text.contains("no machine takes a release") && text.contains("releases/bcd.kdl:1"), "{text}");
        assert!(!told("releases { roles \"admin\"; threshold 1; }\n").contains("no machine takes"));
    }
}
