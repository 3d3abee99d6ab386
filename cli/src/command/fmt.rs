//! `fmt`: KDL files of a fleet in the one style.

use std::{
    fs,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
};

use clap::Args;
use schema::fleet::{self, Ignored, Sources};
use similar::TextDiff;

use crate::{
    exit::{During as _, Exit, Failure},
    output::{self, Output},
    tree,
};

const EXAMPLES: &str = "\
Examples:
  better-compute fmt                       every KDL file of the fleet around here
  better-compute fmt pools/h100.kdl sites  a file, and all below a folder
  better-compute fmt --check               say what would change, for CI
  better-compute fmt --diff                show what would change
  better-compute fmt - < pools/h100.kdl    from standard input to standard output

Exits with 1 when --check finds a file that is not in the style, and with 3 when a file has an error.";

/// Format the KDL files of a fleet repository.
///
/// Only white space changes: comments, what is commented out with /- and the spelling of every value stay, and so does what
/// the file means. A file with an error is left as it is and named; YAML files are never touched.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Fmt {
    /// Files and folders; the whole fleet around here when none is named, standard input for -
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Change nothing, and exit with 1 when something would change
    #[arg(long)]
    pub check: bool,
    /// Change nothing, and show what would change
    #[arg(long)]
    pub diff: bool,
}

impl Fmt {
    /// Formats.
    ///
    /// # Errors
    /// When a path cannot be read or written.
    pub fn run(&self, output: &Output) -> Result<Exit, Failure> {
        if matches!(self.paths.as_slice(), [only] if only.as_os_str() == "-") {
            return self.standard_input(output);
        }
        let (mut changed, mut broken) = (0, 0);
        let found = if self.paths.is_empty() { below(&tree::root(None)?)? } else { named(&self.paths)? };
        for path in &found.kdl {
            let before = fs::read(path).during(format!("cannot read {}", path.display()))?;
            match fleet::format(&before) {
                Ok(after) if after == before => {}
                Ok(after) => {
                    changed += 1;
                    self.change(path, &before, &after, output)?;
                }
                Err(error) => {
                    broken += 1;
                    output::note(format!("{} is left alone: {error}", path.display()));
                }
            }
        }
        if found.yaml > 0 {
            let files = output::text::count(found.yaml as u64, "YAML file");
            output::note(format!("left alone: {files}, for only KDL is formatted"));
        }
        Ok(match (broken, changed) {
            (1.., _) => Exit::InvalidFleet,
            (_, 1..) if self.check => Exit::Failed,
            _ => Exit::Ok,
        })
    }

    fn change(&self, path: &Path, before: &[u8], after: &[u8], output: &Output) -> Result<(), Failure> {
        let shown = path.display().to_string();
        if self.diff {
            return output.line(diff(&shown, before, after).trim_end());
        }
        if self.check {
            return output.line(format!("would format {shown}"));
        }
        replace(path, after)?;
        output.line(format!("formatted {shown}"))
    }

    fn standard_input(&self, output: &Output) -> Result<Exit, Failure> {
        let mut before = Vec::new();
        let limit = Sources::MAX_FILE_BYTES + 1;
        std::io::stdin().lock().take(limit).read_to_end(&mut before).during("cannot read standard input")?;
        let after = match fleet::format(&before) {
            Ok(after) => after,
            Err(error) => return Err(Failure::new(Exit::InvalidFleet, error.to_string())),
        };
        if self.diff {
            output.line(diff("-", &before, &after).trim_end())?;
        } else if !self.check {
            output.line(String::from_utf8_lossy(&after).trim_end_matches('\n'))?;
        }
        Ok(if self.check && before != after { Exit::Failed } else { Exit::Ok })
    }
}

fn diff(path: &str, before: &[u8], after: &[u8]) -> String {
    let (before, after) = (String::from_utf8_lossy(before), String::from_utf8_lossy(after));
    let diff = TextDiff::from_lines(&before, &after);
    diff.unified_diff().context_radius(3).header(&format!("a/{path}"), &format!("b/{path}")).to_string()
}

/// Writes a file in one step: whoever reads it sees the old bytes or the new ones.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || -> std::io::Result<()> {
        let permissions = fs::metadata(path)?.permissions();
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().set_permissions(permissions)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().during(format!("cannot write {}", path.display()))
}

/// The files that were found.
#[derive(Default)]
struct Found {
    kdl: Vec<PathBuf>,
    /// How many hold YAML.
    yaml: usize,
}

fn named(paths: &[PathBuf]) -> Result<Found, Failure> {
    let mut found = Found::default();
    for path in paths {
        let kind = fs::symlink_metadata(path).during(format!("cannot read {}", path.display()))?.file_type();
        if kind.is_dir() {
            let inner = below(path)?;
            found.kdl.extend(inner.kdl);
            found.yaml += inner.yaml;
        } else if kind.is_symlink() {
            return Err(Failure::usage(format!("{} is a link, and links are not followed", path.display())));
        } else if path.extension().is_some_and(|end| end == "kdl") {
            found.kdl.push(path.clone());
        } else {
            output::note(format!("{} is left alone: only KDL files are formatted", path.display()));
        }
    }
    found.kdl.sort();
    found.kdl.dedup();
    Ok(found)
}

/// The files below a folder that the fleet around it does not ignore.
fn below(folder: &Path) -> Result<Found, Failure> {
    let absolute = folder.canonicalize().during(format!("cannot read {}", folder.display()))?;
    let root = absolute.ancestors().find_map(tree::root_file);
    let ignored = root.as_ref().and_then(|file| {
        let name = file.file_name()?.to_str()?;
        Some(Ignored::of(name, &fs::read(file).ok()?))
    });
    let ignored = ignored.unwrap_or_default();
    // Where the folder stands below the root, for what is ignored.
    let inner = root.as_deref().and_then(Path::parent).and_then(|root| absolute.strip_prefix(root).ok());
    let inner = inner.and_then(Path::to_str).filter(|inner| !inner.is_empty()).map(|inner| format!("{inner}/"));
    let inner = inner.unwrap_or_default();
    let sources = tree::read(folder)?;
    let files = sources.iter().filter(|(path, blob)| {
        matches!(blob, fleet::SourceBlob::Bytes(_)) && !ignored.covers(&format!("{inner}{path}"))
    });
    let mut found = Found::default();
    for (path, _) in files {
        if path.ends_with(".kdl") {
            found.kdl.push(folder.join(&**path));
        } else if path.ends_with(".yaml") || path.ends_with(".yml") {
            found.yaml += 1;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use schema::time::Timestamp;

    use super::*;
    use crate::output::Format;

    const UGLY: &str = "pool   \"a\"{\n// c\n site \"b\"\n}\n";
    const NICE: &str = "pool \"a\" {\n  // c\n  site \"b\"\n}\n";

    fn fmt(paths: &[&Path], check: bool) -> Exit {
        let fmt = Fmt { paths: paths.iter().map(|path| path.to_path_buf()).collect(), check, diff: false };
        fmt.run(&Output { format: Format::Text, colour: false, width: None, now: Timestamp::UNIX_EPOCH }).unwrap()
    }

    #[test]
    fn a_folder_is_formatted_and_what_is_not_meant_stays() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        };
        write("fleet.kdl", "fleet \"t\" { format 1; trust-domain \"t.example\"; ignore \"old\" }\n");
        let (ugly, ignored) = (write("pools/a.kdl", UGLY), write("old/a.kdl", UGLY));
        let (yaml, broken) = (write("pools/b.yaml", "kind:   pool\n"), write("pools/c.kdl", "pool {\n"));
        fs::set_permissions(&ugly, fs::Permissions::from_mode(0o640)).unwrap();

        let all = below(dir.path()).unwrap();
        assert_eq!((all.kdl.len(), all.yaml), (3, 1));
        assert_eq!(fmt(&[&ugly], true), Exit::Failed);
        assert_eq!(fs::read_to_string(&ugly).unwrap(), UGLY);
        assert_eq!(fmt(&[&dir.path().join("pools")], false), Exit::InvalidFleet);
        assert_eq!(fs::read_to_string(&ugly).unwrap(), NICE);
        assert_eq!(fs::metadata(&ugly).unwrap().permissions().mode() & 0o777, 0o640);
        fs::remove_file(&broken).unwrap();
        assert_eq!(fmt(&[dir.path()], false), Exit::Ok);
        assert_eq!(fmt(&[dir.path()], true), Exit::Ok);
        assert_eq!(fs::read_to_string(&ignored).unwrap(), UGLY);
        assert_eq!(fs::read_to_string(&yaml).unwrap(), "kind:   pool\n");
        assert_eq!(fs::read_dir(dir.path().join("pools")).unwrap().count(), 2);
    }

    #[test]
    fn a_difference_reads_as_one() {
        let text = diff("a.kdl", UGLY.as_bytes(), NICE.as_bytes());
        assert!(text.starts_with("--- a/a.kdl\n+++ b/a.kdl\n@@ -1,4 +1,4 @@\n-pool   \"a\"{\n"), "{text}");
    }
}
