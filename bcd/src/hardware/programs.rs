//! The programs of a machine that the daemon asks and tells.

use std::{path::PathBuf, time::Duration};

/// Which programs, and how long each may take to answer.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The driver's tool.
    pub smi: PathBuf,
    /// The journal's.
    pub journalctl: PathBuf,
    /// systemd's.
    pub systemctl: PathBuf,
    /// DCGM's.
    pub dcgmi: PathBuf,
    /// How long a question may take.
    pub answer: Duration,
    /// How long the reset of one GPU may take.
    pub reset: Duration,
}

impl Default for Programs {
    fn default() -> Self {
        Self {
            smi: "nvidia-smi".into(),
            journalctl: "journalctl".into(),
            systemctl: "systemctl".into(),
            dcgmi: "dcgmi".into(),
            answer: Duration::from_secs(20),
            reset: Duration::from_secs(120),
        }
    }
}
