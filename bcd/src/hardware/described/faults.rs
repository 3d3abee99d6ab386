//! Faults of a described machine, on a schedule.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use schema::{command::Reason, inventory::Gpu, time::Duration};
use serde::Deserialize;

use crate::hardware::{
    health::{GpuHealth, Health, OnBus, Reading, Silence, Undone, User},
    xid::Xid,
};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// A row of memory waits for a reset to be replaced.
    RowRemapPending,
    /// A row of memory could not be replaced.
    RowRemapFailure,
    /// Memory errors that could not be corrected.
    EccUncorrectable,
    /// The link has half of its lanes.
    LinkNarrow,
    /// The driver has lost the GPU.
    Lost,
    /// No driver sees the GPU.
    Missing,
    /// The driver reports an XID.
    Xid,
    /// A process uses the GPU.
    Busy,
    /// A reset of the GPU does not work.
    ResetFails,
    /// The management interface does not answer.
    Hang,
}

/// What makes it go away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Cure {
    /// A reset of the GPU, or a boot.
    Reset,
    /// A boot.
    Reboot,
    /// Nothing that the daemon does.
    Nothing,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct FaultWords {
    kind: Kind,
    /// Which GPU, from zero; absent: every one.
    gpu: Option<usize>,
    /// The number of an XID.
    #[serde(default = "fallen_off_the_bus")]
    xid: u32,
    /// From when on, counted from the daemon's start.
    #[serde(default)]
    after: Duration,
    /// For how long.
    #[serde(rename = "for")]
    length: Option<Duration>,
    cured_by: Option<Cure>,
}

const fn fallen_off_the_bus() -> u32 {
    79
}

impl FaultWords {
    fn cure(&self) -> Cure {
        self.cured_by.unwrap_or(match self.kind {
            Kind::RowRemapPending | Kind::EccUncorrectable => Cure::Reset,
            Kind::Xid if self.xid != fallen_off_the_bus() => Cure::Reset,
            Kind::Xid | Kind::Lost | Kind::Missing | Kind::Hang => Cure::Reboot,
            Kind::RowRemapFailure | Kind::LinkNarrow | Kind::Busy | Kind::ResetFails => Cure::Nothing,
        })
    }
}

/// The faults of one machine.
#[derive(Debug)]
pub(super) struct Faults {
    words: Vec<FaultWords>,
    begun: Instant,
    /// Which GPUs of which faults are cured.
    cured: Mutex<Vec<Vec<usize>>>,
}

impl Faults {
    pub(super) fn new(words: Vec<FaultWords>) -> Self {
        let cured = Mutex::new(words.iter().map(|_| Vec::new()).collect());
        Self { words, begun: Instant::now(), cured }
    }

    fn standing(&self, gpu: usize) -> Vec<&FaultWords> {
        let passed = self.begun.elapsed();
        let cured = self.cured.lock().unwrap_or_else(PoisonError::into_inner);
        let stands = |(words, cured): &(&FaultWords, &Vec<usize>)| {
            let since = passed.checked_sub(words.after.to_std());
            let now = since.is_some_and(|since| words.length.is_none_or(|length| since < length.to_std()));
            now && words.gpu.is_none_or(|index| index == gpu) && !cured.contains(&gpu)
        };
        self.words.iter().zip(cured.iter()).filter(stands).map(|(words, _)| words).collect()
    }

    pub(super) fn has(&self, gpu: usize, kind: Kind) -> bool {
        self.standing(gpu).iter().any(|words| words.kind == kind)
    }

    fn cure(&self, gpus: impl Iterator<Item = usize> + Clone, by: &[Cure]) {
        let mut cured = self.cured.lock().unwrap_or_else(PoisonError::into_inner);
        for (words, cured) in self.words.iter().zip(cured.iter_mut()) {
            if by.contains(&words.cure()) {
                cured.extend(gpus.clone().filter(|gpu| words.gpu.is_none_or(|index| index == *gpu)));
            }
        }
    }

    pub(super) fn booted(&self, gpus: usize) {
        self.cure(0..gpus, &[Cure::Reset, Cure::Reboot]);
    }

    pub(super) fn health(&self, gpus: &[Gpu]) -> Result<Health, Silence> {
        if (0..gpus.len().max(1)).any(|index| self.has(index, Kind::Hang)) {
            return Err(Silence { hung: true, why: "the described driver hangs".to_owned() });
        }
        let seen = gpus.iter().enumerate().filter(|(index, _)| !self.has(*index, Kind::Missing));
        let gpus = seen.map(|(index, gpu)| self.gpu(index, gpu)).collect();
        Ok(Health { source: "described".to_owned(), driver: None, gpus })
    }

    fn gpu(&self, index: usize, gpu: &Gpu) -> GpuHealth {
        let named = GpuHealth {
            pci: gpu.pci.clone(),
            uuid: gpu.uuid.clone(),
            minor: u32::try_from(index).ok(),
            users: self.users(index),
            ..GpuHealth::default()
        };
        if self.has(index, Kind::Lost) {
            let lost = "GPU is lost".to_owned();
            return GpuHealth {
                ecc_uncorrectable: Reading::Unknown(lost.clone()),
                remap_pending: Reading::Unknown(lost.clone()),
                remap_failure: Reading::Unknown(lost.clone()),
                link_width: Reading::Unknown(lost.clone()),
                lost: Some(lost),
                ..named
            };
        }
        GpuHealth {
            ecc_uncorrectable: Reading::Known(if self.has(index, Kind::EccUncorrectable) { 2 } else { 0 }),
            remap_pending: Reading::Known(self.has(index, Kind::RowRemapPending)),
            remap_failure: Reading::Known(self.has(index, Kind::RowRemapFailure)),
            link_width: Reading::Known(if self.has(index, Kind::LinkNarrow) { 8 } else { 16 }),
            link_max: Reading::Known(16),
            ..named
        }
    }

    pub(super) fn users(&self, index: usize) -> Vec<User> {
        let busy = self.has(index, Kind::Busy);
        busy.then(|| User { pid: 4242, name: "described-job".to_owned() }).into_iter().collect()
    }

    pub(super) fn bus(gpus: &[Gpu]) -> Vec<OnBus> {
        let gpus = gpus.iter().filter_map(|gpu| gpu.pci.clone());
        gpus.map(|pci| OnBus { pci, driver: Some("described".to_owned()) }).collect()
    }

    pub(super) fn xids(&self, gpus: &[Gpu]) -> Vec<Xid> {
        let mut events = Vec::new();
        for (index, gpu) in gpus.iter().enumerate() {
            let Some(place) = gpu.pci.as_deref().and_then(|pci| pci.rsplit_once('.')) else { continue };
            for words in self.standing(index).into_iter().filter(|words| words.kind == Kind::Xid) {
                let at = words.after.as_secs() * 1_000_000;
                events.push(Xid { at, pci: place.0.to_owned(), code: words.xid, text: "described".to_owned() });
            }
        }
        events
    }

    pub(super) fn reset(&self, index: usize) -> Result<(), Undone> {
        if self.has(index, Kind::ResetFails) || self.has(index, Kind::Lost) || self.has(index, Kind::Missing) {
            let why = "the described GPU does not reset".to_owned();
            return Err(Undone { reason: Reason::PROGRAM_FAILED, why });
        }
        self.cure(std::iter::once(index), &[Cure::Reset]);
        Ok(())
    }
}
