//! What took long to parse, in a file beside the repositories: the next process need not do it again.
//!
//! The file only saves time. It is appended to, and written anew beside itself and renamed when it has grown; whatever is
//! damaged, cut off, of another version or not there is parsed again, and a disk that is full costs nothing else. Several
//! processes may share it: each of them adds whole lines that prove themselves.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use schema::fleet::{Cache, Limits, Loaded, Sources, Stop, Stopped};

use super::git::chain;

/// The largest file that is read or added to.
const MAX_BYTES: u64 = 128 << 20;

/// A cache of files that outlives its process.
#[derive(Debug, Clone, Default)]
pub struct Kept {
    cache: Cache,
    file: Option<PathBuf>,
    opened: bool,
    least: usize,
}

impl Kept {
    /// What is kept in the folder `dir`, which need not exist; the file is read at the first load.
    #[must_use]
    pub fn at(dir: &Path) -> Self {
        Self { file: Some(dir.join("parses")), ..Self::default() }
    }

    /// Only adds to the file when there are at least so many parses to add: a small fleet leaves nothing behind.
    #[must_use]
    pub fn at_least(mut self, least: usize) -> Self {
        self.least = least;
        self
    }

    /// Reads a tree, as [`schema::fleet::load`] does. Blocking.
    pub fn load(&mut self, sources: &Sources) -> Loaded {
        self.load_until(sources, &Stop::never()).expect("nobody stops it")
    }

    /// The same, unless it is stopped. Blocking.
    ///
    /// # Errors
    /// When it was stopped; nothing is known of the tree then.
    pub fn load_until(&mut self, sources: &Sources, stop: &Stop<'_>) -> Result<Loaded, Stopped> {
        let Some(file) = self.file.clone() else { return self.cache.load_until(sources, Limits::default(), stop) };
        let whole = self.opened || self.open(&file);
        self.opened = true;
        let loaded = self.cache.load_until(sources, Limits::default(), stop)?;
        if let Err(error) = self.store(&file, whole) {
            tracing::debug!(error = %chain(&error), file = %file.display(), "what was parsed is not kept");
        }
        Ok(loaded)
    }

    /// Takes in the file; answers whether more can be put at its end.
    fn open(&mut self, file: &Path) -> bool {
        let read = || -> io::Result<String> {
            let mut bytes = Vec::new();
            File::open(file)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let Ok(text) = read() else { return false };
        self.cache.restore(&text);
        // A line that a crash cut off would swallow the next one.
        Cache::knows(&text) && text.ends_with('\n')
    }

    /// Adds what is new; a file that is none of ours, or that has grown much beyond what is used, is written anew.
    fn store(&mut self, file: &Path, whole: bool) -> io::Result<()> {
        let fresh = self.cache.fresh();
        if fresh.lines().count() < self.least || (fresh.is_empty() && whole) {
            return Ok(());
        }
        let size = fs::metadata(file).map_or(0, |meta| meta.len());
        if whole && size > 0 && size + (fresh.len() as u64) < MAX_BYTES / 2 {
            return OpenOptions::new().append(true).open(file)?.write_all(fresh.as_bytes());
        }
        let kept = self.cache.kept();
        if kept.lines().count() < 2 {
            return Ok(());
        }
        if let Some(dir) = file.parent() {
            fs::create_dir_all(dir)?;
        }
        let beside = file.with_extension("new");
        let mut new = OpenOptions::new().create(true).write(true).truncate(false).open(&beside)?;
        // Somebody else is at it: theirs is as good.
        if new.try_lock().is_err() {
            return Ok(());
        }
        new.set_len(0)?;
        let written = new.write_all(kept.as_bytes()).and_then(|()| fs::rename(&beside, file));
        if written.is_err() {
            let _gone = fs::remove_file(&beside);
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(name: &str) -> Sources {
        let root = "fleet \"t\" { format 1; trust-domain \"t.example\" }\n".to_owned();
        let site = format!("kind: site\nname: {name}\nregion: r\n");
        [("fleet.kdl", root), ("sites/a.yaml", site)]
            .into_iter()
            .map(|(path, text)| (path, text.into_bytes()))
            .collect()
    }

    fn lines(dir: &Path) -> usize {
        fs::read_to_string(dir.join("parses")).map_or(0, |text| text.lines().count())
    }

    #[test]
    fn what_was_parsed_is_there_for_the_next_process() {
        let dir = tempfile::tempdir().expect("a folder");
        let dir = dir.path().join("not-there-yet");
        let first = Kept::at(&dir).load(&sources("a"));
        assert_eq!(lines(&dir), 2);
        let second = Kept::at(&dir).load(&sources("a"));
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
        assert_eq!(lines(&dir), 2, "nothing is added twice");
        let mut third = Kept::at(&dir);
        third.load(&sources("a"));
        third.load(&sources("b"));
        assert_eq!(lines(&dir), 3);
    }

    #[test]
    fn damage_costs_time_only() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("parses");
        let expected = format!("{:?}", Kept::at(dir.path()).load(&sources("a")));
        let good = fs::read(&file).expect("the file");
        let mut flipped = good.clone();
        let last = flipped.len() - 9;
        flipped[last] ^= 1;
        for bytes in [&b""[..], b"\xff\xfe\x00", b"better-compute parses 0\nx\n", &good[..good.len() - 20], &flipped] {
            fs::write(&file, bytes).expect("writes");
            assert_eq!(format!("{:?}", Kept::at(dir.path()).load(&sources("a"))), expected);
            assert_eq!(format!("{:?}", Kept::at(dir.path()).load(&sources("a"))), expected);
        }
    }

    #[test]
    fn where_nothing_can_be_written_a_tree_is_read_all_the_same() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("file"), "x").expect("writes");
        assert!(Kept::at(&dir.path().join("file")).load(&sources("a")).fleet.is_some());
        fs::create_dir(dir.path().join("parses")).expect("a folder in its place");
        assert!(Kept::at(dir.path()).load(&sources("a")).fleet.is_some());
    }
}
