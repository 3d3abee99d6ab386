//! Which number DCGM gives to which GPU: the table of `dcgmi discovery -l`.

use crate::hardware::{health::GpuHealth, pci};

/// A GPU and its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) number: u32,
    pub(super) gpu: GpuHealth,
}

/// The GPUs of the table. Switches and processors have tables of their own below, without an address in them.
pub(super) fn read(text: &str) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    for line in text.lines() {
        let mut cells = line.trim().trim_matches('|').splitn(2, '|').map(str::trim);
        let (Some(number), Some(said)) = (cells.next(), cells.next()) else { continue };
        if let Ok(number) = number.parse() {
            found.push(Found { number, gpu: GpuHealth::default() });
        }
        let Some(last) = found.last_mut() else { continue };
        match said.split_once(':').map(|(name, value)| (name.trim(), value.trim())) {
            Some(("PCI Bus ID", value)) => last.gpu.pci = pci(value),
            Some(("Device UUID", value)) => last.gpu.uuid = Some(value.to_owned()),
            _ => {}
        }
    }
    found.retain(|found| found.gpu.pci.is_some() || found.gpu.uuid.is_some());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_which_number_is_which_gpu() {
        let found = read(include_str!("testdata/discovery.txt"));
        let read: Vec<_> =
            found.iter().map(|found| (found.number, found.gpu.pci.as_deref(), found.gpu.uuid.as_deref())).collect();
        assert_eq!(
            read,
            [
                (0, Some("0000:07:00.0"), Some("GPU-4ba7527e-9e11-9723-0d5a-d2b23c573886")),
                (1, Some("0000:0f:00.0"), Some("GPU-5884ac10-4f56-6d99-5565-1674f97e0f68")),
            ]
        );
        assert!(read_nothing());
    }

    fn read_nothing() -> bool {
        ["", "No GPUs found.", "0 | Name: x", "|||||"].iter().all(|text| read(text).is_empty())
    }
}
