//! The driver's library, loaded at run time, and only ever in a child: `bcd probe nvml` prints what it says as JSON.

use nvml_wrapper::{Nvml, error::NvmlError};
use schema::inventory::Gpu;

/// The GPUs that the library knows. To be called in a child that may be killed.
///
/// # Errors
/// When there is no library, no driver, or no answer.
pub fn probe() -> Result<Vec<Gpu>, NvmlError> {
    let nvml = Nvml::init()?;
    let count = nvml.device_count()?;
    let mut gpus = Vec::new();
    for index in 0..count {
        let Ok(device) = nvml.device_by_index(index) else { continue };
        gpus.push(Gpu {
            uuid: device.uuid().ok(),
            model: device.name().ok(),
            pci: device.pci_info().ok().and_then(|pci| super::smi::pci(&pci.bus_id)),
            serial: device.serial().ok(),
            memory_mib: device.memory_info().ok().map(|memory| memory.total / (1024 * 1024)),
            numa_node: None,
            seen_by: vec!["nvml".to_owned()],
        });
    }
    Ok(gpus)
}
