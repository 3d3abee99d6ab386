//! GPUs from three sources, compared: the driver library, `nvidia-smi`, and the PCI bus.
//!
//! A GPU is one PCI address. What a better source says wins; what only the bus sees is still a GPU of this machine.

use std::{collections::BTreeMap, fs, path::Path};

use schema::inventory::Gpu;

const NVIDIA: &str = "0x10de";

/// One list out of several, best source first. `None` as a source means that it gave no answer.
pub(super) fn merge(sources: [Option<Vec<Gpu>>; 3]) -> Option<Vec<Gpu>> {
    if sources.iter().all(Option::is_none) {
        return None;
    }
    let mut merged: BTreeMap<String, Gpu> = BTreeMap::new();
    let mut homeless = Vec::new();
    for gpu in sources.into_iter().flatten().flatten() {
        let Some(pci) = gpu.pci.clone() else {
            homeless.push(gpu);
            continue;
        };
        let known = merged.entry(pci).or_default();
        known.pci = known.pci.take().or(gpu.pci);
        known.uuid = known.uuid.take().or(gpu.uuid);
        known.model = known.model.take().or(gpu.model);
        known.serial = known.serial.take().or(gpu.serial);
        known.memory_mib = known.memory_mib.or(gpu.memory_mib);
        known.numa_node = known.numa_node.or(gpu.numa_node);
        known.seen_by.extend(gpu.seen_by);
    }
    Some(merged.into_values().chain(homeless).collect())
}

/// NVIDIA's display and 3D controllers on the bus; `None` when the bus cannot be seen.
pub(super) fn on_the_bus(sys: &Path) -> Option<Vec<Gpu>> {
    let devices = fs::read_dir(sys.join("bus/pci/devices")).ok()?;
    let mut gpus = Vec::new();
    for device in devices.flatten() {
        let read = |name: &str| fs::read_to_string(device.path().join(name)).ok().map(|text| text.trim().to_owned());
        let class = read("class").unwrap_or_default();
        let is_gpu = class.starts_with("0x0300") || class.starts_with("0x0302");
        if read("vendor").as_deref() != Some(NVIDIA) || !is_gpu {
            continue;
        }
        gpus.push(Gpu {
            pci: device.file_name().to_str().and_then(super::smi::pci),
            numa_node: read("numa_node").and_then(|text| text.parse().ok()),
            seen_by: vec!["pci".to_owned()],
            ..Gpu::default()
        });
    }
    gpus.sort_by(|a, b| a.pci.cmp(&b.pci));
    Some(gpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(pci: &str, by: &str) -> Gpu {
        Gpu { pci: Some(pci.into()), seen_by: vec![by.into()], ..Gpu::default() }
    }

    #[test]
    fn a_gpu_that_every_driver_misses_is_still_there() {
        let mut good = gpu("0000:18:00.0", "nvml");
        good.uuid = Some("GPU-1".into());
        let bus = vec![gpu("0000:18:00.0", "pci"), gpu("0000:2a:00.0", "pci")];
        let merged = merge([Some(vec![good]), None, Some(bus)]).expect("answers");
        assert_eq!(merged.len(), 2);
        assert_eq!(merged[0].seen_by, ["nvml", "pci"]);
        assert_eq!(merged[0].uuid.as_deref(), Some("GPU-1"));
        assert_eq!(merged[1].seen_by, ["pci"]);
    }

    #[test]
    fn no_answer_at_all_is_unknown_and_not_zero() {
        assert_eq!(merge([None, None, None]), None);
        assert_eq!(merge([None, None, Some(Vec::new())]), Some(Vec::new()));
    }
}
