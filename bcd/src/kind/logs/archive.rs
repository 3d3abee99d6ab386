//! A tar archive (POSIX ustar) that is written once, from front to end, and its digest on the way.

use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
};

use schema::{
    digest::{Digest, Running},
    time::Timestamp,
};

const BLOCK: u64 = 512;

/// What an entry of so many bytes takes without its header.
pub(super) const fn padded(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK) * BLOCK
}

/// What an archive of so many entries takes beside their bytes: headers, padding and the two empty blocks at its end.
pub(super) const fn overhead(entries: usize) -> u64 {
    (entries as u64) * 2 * BLOCK + 2 * BLOCK
}

pub(super) struct Archive {
    out: BufWriter<File>,
    digest: Running,
    bytes: u64,
    time: u64,
    left: u64,
    padding: u64,
}

impl Archive {
    pub(super) fn new(file: File, now: Timestamp) -> Self {
        let time = u64::try_from(now.as_second()).unwrap_or(0);
        Self { out: BufWriter::new(file), digest: Running::default(), bytes: 0, time, left: 0, padding: 0 }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.add(bytes);
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Begins an entry of exactly so many bytes.
    pub(super) fn begin(&mut self, name: &str, bytes: u64) -> io::Result<()> {
        let mut header = [0_u8; 512];
        let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, &name[..name.len().min(100)]);
        put(100, "0000600\0");
        put(108, "0000000\0");
        put(116, "0000000\0");
        put(124, &format!("{bytes:011o}\0"));
        put(136, &format!("{:011o}\0", self.time));
        put(148, "        ");
        put(156, "0");
        put(257, "ustar\0");
        put(263, "00");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        (self.left, self.padding) = (bytes, padded(bytes) - bytes);
        self.write(&header)
    }

    /// Adds to the entry.
    pub(super) fn piece(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = bytes.len() as u64;
        if length > self.left {
            return Err(io::Error::other("a part grew while it was read"));
        }
        self.left -= length;
        self.write(bytes)
    }

    /// Ends the entry.
    pub(super) fn end(&mut self) -> io::Result<()> {
        if self.left > 0 {
            return Err(io::Error::other("a part shrank while it was read"));
        }
        let padding = usize::try_from(self.padding).expect("padding is less than a block");
        self.write(&[0; 512][..padding])
    }

    /// Ends the archive: its length and its digest.
    pub(super) fn finish(mut self) -> io::Result<(u64, Digest)> {
        self.write(&[0; 1024])?;
        self.out.flush()?;
        self.out.get_ref().sync_all()?;
        Ok((self.bytes, self.digest.finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_programs_read_the_archive() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("a.tar");
        let mut archive =
            Archive::new(File::create(&path).expect("made"), Timestamp::from_second(1_700_000_000).expect("a time"));
        for (name, text) in [("one.txt", "hello\n".to_owned()), ("two.txt", "x".repeat(1024)), ("empty", String::new())]
        {
            archive.begin(name, text.len() as u64).expect("written");
            archive.piece(text.as_bytes()).expect("written");
            archive.end().expect("written");
        }
        let (bytes, digest) = archive.finish().expect("written");
        let content = std::fs::read(&path).expect("read");
        assert_eq!((bytes, digest), (content.len() as u64, Digest::of(&content)));
        let listed = std::process::Command::new("tar").arg("-tf").arg(&path).output().expect("tar runs");
        assert_eq!(String::from_utf8_lossy(&listed.stdout), "one.txt\ntwo.txt\nempty\n");
        let read = std::process::Command::new("tar").arg("-xOf").arg(&path).arg("one.txt").output().expect("tar runs");
        assert_eq!(read.stdout, b"hello\n");
    }

    #[test]
    fn a_part_that_is_not_as_long_as_was_said_is_an_error() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut archive = Archive::new(File::create(dir.path().join("a.tar")).expect("made"), Timestamp::UNIX_EPOCH);
        archive.begin("one", 2).expect("written");
        assert!(archive.piece(b"abc").is_err());
        archive.piece(b"a").expect("written");
        assert!(archive.end().is_err());
    }
}
