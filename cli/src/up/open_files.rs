//! How many files this process may have open. A connection is one, and many hosts allow 1,024 until somebody asks for more.

use nix::{
    errno::Errno,
    sys::resource::{Resource, getrlimit, setrlimit},
};

/// Files beside the connections: those to PostgreSQL, the keys, the logs.
const BESIDE: u64 = 256;

/// Asks for as many as the host grants, and says so where that is too few for these connections.
pub(super) fn raise(connections: usize) {
    let wanted = connections as u64 + BESIDE;
    match granted() {
        Ok(granted) if granted < wanted => tracing::info!(
            granted,
            wanted,
            "this process may have few files open, and each connection is one: raise the hard limit of open files (LimitNOFILE= of systemd, ulimit -Hn)"
        ),
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "the limit of open files cannot be raised"),
    }
}

/// The soft limit, once it is as high as the hard one.
fn granted() -> Result<u64, Errno> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_asks_for_all_the_files_that_its_host_grants() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 128, hard).unwrap();
        assert_eq!(granted(), Ok(hard));
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE), Ok((hard, hard)));
    }
}
