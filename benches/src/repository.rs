//! A git repository with a fleet in it, packed as a remote one is after a fetch.

use std::{
    io::{BufWriter, Write as _},
    path::Path,
    process::{ChildStdin, Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use crate::fleet::{self, File};

/// Writes three commits: a fleet (`first`), ten machines changed (`changed`), and nothing changed after that (`same`).
pub(crate) fn make(dir: &Path, nodes: usize, yaml: usize) -> Result<()> {
    import(dir, |stream| {
        for (mark, files) in [(1, fleet::files(nodes, yaml)), (2, fleet::changed(nodes, yaml)), (3, Vec::new())] {
            commit(stream, mark, &files)?;
        }
        for (name, mark) in [("first", 1), ("changed", 2), ("same", 3)] {
            write!(stream, "reset refs/heads/{name}\nfrom :{mark}\n\n")?;
        }
        Ok(())
    })?;
    git(dir, &["repack", "-a", "-d", "-f", "-q"])
}

/// Writes a fleet, a commit with one file more, and then one after the other that changes a machine (`main`): so many, and the root.
pub(crate) fn changes(dir: &Path, nodes: usize, commits: usize, more: File) -> Result<()> {
    import(dir, |stream| {
        commit(stream, 1, &fleet::files(nodes, 0))?;
        commit(stream, 2, &[more])?;
        for mark in 3..=commits + 1 {
            commit(stream, mark, &[fleet::node(mark * 7 % nodes, 0, &format!("{mark}"))])?;
        }
        Ok(())
    })
}

/// Makes a bare repository of what is written in the language of `git fast-import`.
fn import(dir: &Path, write: impl FnOnce(&mut BufWriter<ChildStdin>) -> Result<()>) -> Result<()> {
    git(dir, &["init", "--quiet", "--bare", "-b", "main", "."])?;
    let mut import = Command::new("git")
        .args(["fast-import", "--quiet"])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .spawn()
        .context("git is needed")?;
    let mut stream = BufWriter::new(import.stdin.take().context("a pipe")?);
    write(&mut stream)?;
    drop(stream);
    ensure!(import.wait()?.success(), "git fast-import failed");
    Ok(())
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

/// Runs `git` there.
pub(crate) fn git(dir: &Path, words: &[&str]) -> Result<()> {
    let status = Command::new("git").args(words).current_dir(dir).status().context("git is needed")?;
    ensure!(status.success(), "git {} failed", words.join(" "));
    Ok(())
}
