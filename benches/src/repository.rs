//! A git repository with a fleet in it, packed as a remote one is after a fetch.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use crate::fleet::{self, File};

/// Writes three commits: a fleet (`first`), ten machines changed (`changed`), and nothing changed after that (`same`).
pub(crate) fn make(dir: &Path, nodes: usize, yaml: usize) -> Result<()> {
    git(dir, &["init", "--quiet", "--bare", "."])?;
    let mut import = Command::new("git")
        .args(["fast-import", "--quiet"])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .spawn()
        .context("git is needed")?;
    let mut stream = std::io::BufWriter::new(import.stdin.take().context("a pipe")?);
    for (mark, files) in [(1, fleet::files(nodes, yaml)), (2, fleet::changed(nodes, yaml)), (3, Vec::new())] {
        commit(&mut stream, mark, &files)?;
    }
    for (name, mark) in [("first", 1), ("changed", 2), ("same", 3)] {
        write!(stream, "reset refs/heads/{name}\nfrom :{mark}\n\n")?;
    }
    drop(stream);
    ensure!(import.wait()?.success(), "git fast-import failed");
    git(dir, &["repack", "-a", "-d", "-f", "-q"])
}

fn commit(stream: &mut impl std::io::Write, mark: usize, files: &[File]) -> Result<()> {
    write!(stream, "commit refs/heads/main\nmark :{mark}\ncommitter bench <bench@bench.example> 1790000000 +0000\n")?;
    write!(stream, "data 5\nfleet\n")?;
    for (path, text) in files {
        write!(stream, "M 100644 inline {path}\ndata {}\n{text}\n", text.len())?;
    }
    writeln!(stream)?;
    Ok(())
}

fn git(dir: &Path, words: &[&str]) -> Result<()> {
    let status = Command::new("git").args(words).current_dir(dir).status().context("git is needed")?;
    ensure!(status.success(), "git {} failed", words.join(" "));
    Ok(())
}
