//! A program whose output is too long to keep: it is handed on piece by piece, and the program ends when nobody wants more.

use std::{
    io::Read as _,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use super::{RunError, drain, kill};

const PIECE: usize = 64 * 1024;
/// Pieces that wait at most, before the program does.
const AHEAD: usize = 8;
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
    let name = program.display().to_string();
    let mut child = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|source| RunError::Start { program: name.clone(), source })?;
    let stderr = drain(child.stderr.take());
    let (sender, pieces) = mpsc::sync_channel::<Vec<u8>>(AHEAD);
    let pipe = child.stdout.take();
    thread::spawn(move || {
        let Some(mut pipe) = pipe else { return };
        let mut piece = vec![0; PIECE];
        while let Ok(length @ 1..) = pipe.read(&mut piece) {
            if sender.send(piece[..length].to_vec()).is_err() {
                return;
            }
        }
    });

    let begun = Instant::now();
    let left = || deadline.saturating_sub(begun.elapsed());
    let late = || RunError::Deadline { program: name.clone(), seconds: deadline.as_secs() };
    loop {
        let piece = match pieces.recv_timeout(left().min(LOOK)) {
            Ok(piece) => piece,
            Err(RecvTimeoutError::Timeout) => Vec::new(),
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if !take(&piece) {
            kill(&mut child);
            return Ok(Streamed::Stopped);
        }
        if left().is_zero() {
            kill(&mut child);
            return Err(late());
        }
    }
    let Ok(err) = stderr.recv_timeout(left()) else {
        kill(&mut child);
        return Err(late());
    };
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                let stderr = String::from_utf8_lossy(&err).trim().to_owned();
                return Ok(Streamed::Ended { success: status.success(), stderr });
            }
            Ok(None) if !left().is_zero() => thread::sleep(Duration::from_millis(5)),
            _ => {
                kill(&mut child);
                return Err(late());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

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
    fn a_program_that_says_nothing_for_too_long_is_killed() {
        let error = sh("sleep 600 & wait", Duration::from_millis(50), |_| true).expect_err("hangs");
        assert!(matches!(error, RunError::Deadline { .. }), "{error}");
    }
}
