//! A program whose output is too long to keep: it is handed on piece by piece, and the program ends when nobody wants more.

use std::{
    io::Read as _,
    path::Path,
    sync::mpsc::{self, RecvTimeoutError},
    time::Duration,
};

use super::{RunError, Running, spawn};

const PIECE: usize = 64 * 1024;
/// Pieces that wait at most, before the program does.
const AHEAD: usize = 8;
/// How often `take` is asked whether to go on while nothing comes.
const LOOK: Duration = Duration::from_millis(100);

/// How a program ended whose output was handed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Streamed {
    /// By itself; whether its exit code was zero, and what it complained.
    Ended {
        /// Whether its exit code was zero.
        success: bool,
        /// What it complained.
        stderr: String,
    },
    /// It was killed because `take` wanted no more.
    Stopped,
}

/// Runs a program and hands its output to `take`, which is called with nothing now and then while none comes. `take` says
/// whether to go on.
///
/// # Errors
/// When it cannot be started, or does not end in time.
pub fn stream(
    program: &Path,
    args: &[&str],
    deadline: Duration,
    mut take: impl FnMut(&[u8]) -> bool,
) -> Result<Streamed, RunError> {
    let mut running = Running::start(program, args, deadline)?;
    let (sender, pieces) = mpsc::sync_channel::<Vec<u8>>(AHEAD);
    let pipe = running.child.stdout.take();
    let hand_on = move || {
        let Some(mut pipe) = pipe else { return };
        let mut piece = vec![0; PIECE];
        while let Ok(length @ 1..) = pipe.read(&mut piece) {
            if sender.send(piece[..length].to_vec()).is_err() {
                return;
            }
        }
    };
    if let Err(source) = spawn(hand_on) {
        return Err(running.unread(source));
    }

    loop {
        let piece = match pieces.recv_timeout(running.left().min(LOOK)) {
            Ok(piece) => piece,
            Err(RecvTimeoutError::Timeout) => Vec::new(),
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if !take(&piece) {
            running.kill();
            return Ok(Streamed::Stopped);
        }
        if running.left().is_zero() {
            return Err(running.late());
        }
    }
    let (success, stderr) = running.end()?;
    Ok(Streamed::Ended { success, stderr })
}

#[cfg(test)]
mod tests {
    use std::thread;

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    const LONG: Duration = Duration::from_secs(90);

    fn sh(script: &str, deadline: Duration, take: impl FnMut(&[u8]) -> bool) -> Result<Streamed, RunError> {
        stream(Path::new("sh"), &["-c", script], deadline, take)
    }

    #[test]
    fn all_of_a_long_output_comes_and_none_of_it_is_kept() {
        let mut bytes = 0;
        let ended = sh("head -c 20000000 /dev/zero; echo bad >&2; exit 3", LONG, |piece| {
            bytes += piece.len();
            true
        });
        assert_eq!(ended.expect("ran"), Streamed::Ended { success: false, stderr: "bad".to_owned() });
        assert_eq!(bytes, 20_000_000);
    }

    #[test]
    fn who_wants_no_more_ends_the_program() {
        assert_eq!(sh("yes", LONG, |piece| piece.is_empty()).expect("ran"), Streamed::Stopped);
        let mut looks = 0;
        let ended = sh("sleep 600 & wait", LONG, |_| {
            looks += 1;
            looks < 3
        });
        assert_eq!(ended.expect("ran"), Streamed::Stopped);
    }

    #[test]
    fn a_program_is_killed_with_its_children() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let held = dir.path().join("held");
        mkfifo(&held, Mode::S_IRWXU).expect("made");
        let script = format!("exec 3>{}; sleep 600 & echo begun; wait", held.display());
        let (let_go, heard) = mpsc::channel();
        // The pipe ends when nobody holds it any more.
        thread::spawn(move || let_go.send(std::fs::read(held).map(|read| read.len()).ok()));
        assert_eq!(sh(&script, LONG, |piece| piece.is_empty()).expect("ran"), Streamed::Stopped);
        assert_eq!(heard.recv_timeout(LONG), Ok(Some(0)));
    }

    #[test]
    fn a_program_that_says_nothing_for_too_long_is_killed() {
        let error = sh("sleep 600 & wait", Duration::from_millis(50), |_| true).expect_err("hangs");
        assert!(matches!(error, RunError::Deadline { .. }), "{error}");
    }
}
