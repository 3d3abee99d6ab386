//! The end of a long text, in pieces on disk: when there is too much, the oldest piece goes.

use std::{
    collections::VecDeque,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// What was kept of a text.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) pieces: Vec<PathBuf>,
    pub(super) bytes: u64,
    pub(super) left_out: u64,
}

/// Takes a text and keeps its end.
#[derive(Debug)]
pub(super) struct Tail {
    dir: PathBuf,
    cap: u64,
    piece: u64,
    done: VecDeque<(PathBuf, u64)>,
    open: Vec<u8>,
    bytes: u64,
    left_out: u64,
    next: u64,
}

impl Tail {
    /// Keeps at most `cap` bytes in a directory.
    pub(super) fn new(dir: &Path, cap: u64) -> Self {
        let piece = (cap / 16).clamp(4 * 1024, 4 * 1024 * 1024);
        Self {
            dir: dir.to_owned(),
            cap,
            piece,
            done: VecDeque::new(),
            open: Vec::new(),
            bytes: 0,
            left_out: 0,
            next: 0,
        }
    }

    pub(super) fn take(&mut self, mut text: &[u8]) -> io::Result<()> {
        while !text.is_empty() {
            let room = usize::try_from(self.piece).unwrap_or(usize::MAX).saturating_sub(self.open.len()).max(1);
            let (now, rest) = text.split_at(room.min(text.len()));
            self.open.extend_from_slice(now);
            self.bytes += now.len() as u64;
            text = rest;
            if self.open.len() as u64 >= self.piece {
                self.close()?;
            }
        }
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        let path = self.dir.join(format!("{:08}", self.next));
        self.next += 1;
        super::new(&path)?.write_all(&self.open)?;
        self.done.push_back((path, self.open.len() as u64));
        self.open.clear();
        // One piece more than fits is kept: the cut is made inside it.
        while self.done.front().is_some_and(|(_, first)| self.bytes - first >= self.cap) {
            let (path, length) = self.done.pop_front().expect("there is a first one");
            fs::remove_file(path)?;
            self.bytes -= length;
            self.left_out += length;
        }
        Ok(())
    }

    /// What was kept, cut at the beginning of a line where something is left out.
    pub(super) fn finish(mut self) -> io::Result<Kept> {
        if !self.open.is_empty() {
            self.close()?;
        }
        while self.bytes > self.cap || (self.left_out > 0 && !self.done.is_empty()) {
            let Some((path, length)) = self.done.pop_front() else { break };
            let text = fs::read(&path)?;
            let over = usize::try_from(self.bytes.saturating_sub(self.cap)).unwrap_or(usize::MAX).min(text.len());
            let cut = text[over..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |at| over + at + 1);
            self.left_out += cut as u64;
            self.bytes -= cut as u64;
            if cut < text.len() {
                super::new(&path)?.write_all(&text[cut..])?;
                self.done.push_front((path, length - cut as u64));
                break;
            }
            fs::remove_file(&path)?;
        }
        let pieces = self.done.into_iter().map(|(path, _)| path).collect();
        Ok(Kept { pieces, bytes: self.bytes, left_out: self.left_out })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keep(texts: &[Vec<u8>], cap: u64) -> (Vec<u8>, Kept) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut tail = Tail::new(dir.path(), cap);
        for text in texts {
            tail.take(text).expect("kept");
        }
        let kept = tail.finish().expect("kept");
        let all = kept.pieces.iter().flat_map(|path| fs::read(path).expect("there")).collect();
        (all, kept)
    }

    #[test]
    fn what_fits_is_kept_whole() {
        let (all, kept) = keep(&[b"one\ntwo\n".to_vec()], 8);
        assert_eq!((all.as_slice(), kept.bytes, kept.left_out), (&b"one\ntwo\n"[..], 8, 0));
    }

    #[test]
    fn the_oldest_lines_go_first_and_whole() {
        let lines: Vec<Vec<u8>> = (0..10_000).map(|number| format!("line {number}\n").into_bytes()).collect();
        let whole: usize = lines.iter().map(Vec::len).sum();
        let (all, kept) = keep(&lines, 20_000);
        let text = String::from_utf8(all).expect("text");
        assert!(text.starts_with("line ") && text.ends_with("line 9999\n"));
        assert!(kept.bytes <= 20_000 && kept.bytes > 19_000, "{}", kept.bytes);
        assert_eq!(kept.bytes + kept.left_out, whole as u64);
    }

    /// A text of so many bytes, with lines of about so many.
    fn text((bytes, line): (usize, usize)) -> Vec<u8> {
        (0..bytes).map(|at| if at % line == line - 1 { b'\n' } else { b'a' + (at % 26) as u8 }).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_end_is_kept_within_the_limit(
            texts in prop::collection::vec((0_usize..9000, 1_usize..6000).prop_map(text), 0..12),
            cap in 0_u64..40_000,
        ) {
            let whole: Vec<u8> = texts.concat();
            let (all, kept) = keep(&texts, cap);
            prop_assert!(kept.bytes <= cap && kept.bytes == all.len() as u64);
            prop_assert!(whole.ends_with(&all));
            prop_assert_eq!(kept.bytes + kept.left_out, whole.len() as u64);
            if kept.left_out == 0 {
                prop_assert_eq!(all.len(), whole.len());
            }
        }
    }
}
