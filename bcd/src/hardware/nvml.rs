//! The driver's library, loaded at run time, and only ever in a child: `bcd probe nvml` prints what it says as JSON.

use nvml_wrapper::{
    Device, Nvml,
    enum_wrappers::device::{EccCounter, MemoryError},
    enums::device::SampleValue,
    error::NvmlError,
    structs::device::FieldId,
};
use schema::inventory::Gpu;

use super::health::{GpuHealth, Health, Reading, User};

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

/// Two of the library's numbered fields: a row waits to be replaced; one could not be.
const REMAP_PENDING: FieldId = FieldId(144);
const REMAP_FAILURE: FieldId = FieldId(145);

/// The health of the GPUs that the library knows. To be called in a child that may be killed.
///
/// # Errors
/// When there is no library, no driver, or no answer.
pub fn health() -> Result<Health, NvmlError> {
    let nvml = Nvml::init()?;
    let count = nvml.device_count()?;
    let driver = nvml.sys_driver_version().ok();
    let gpus = (0..count).map(|index| match nvml.device_by_index(index) {
        Ok(device) => of_device(&device),
        Err(error) => GpuHealth { lost: Some(error.to_string()), ..GpuHealth::default() },
    });
    Ok(Health { source: "nvml".to_owned(), driver, gpus: gpus.collect() })
}

fn of_device(device: &Device<'_>) -> GpuHealth {
    let ecc = device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile);
    let lost = match &ecc {
        Err(error @ (NvmlError::GpuLost | NvmlError::ResetRequired)) => Some(error.to_string()),
        _ => None,
    };
    let mut users: Vec<User> = [device.running_compute_processes(), device.running_graphics_processes()]
        .into_iter()
        .flatten()
        .flatten()
        .map(|process| User { pid: process.pid, name: String::new() })
        .collect();
    users.sort();
    users.dedup();
    GpuHealth {
        pci: device.pci_info().ok().and_then(|pci| super::smi::pci(&pci.bus_id)),
        uuid: device.uuid().ok(),
        minor: device.minor_number().ok(),
        lost,
        ecc_uncorrectable: reading(ecc),
        remap_pending: flag(device, REMAP_PENDING),
        remap_failure: flag(device, REMAP_FAILURE),
        link_width: reading(device.current_pcie_link_width()),
        link_max: reading(device.max_pcie_link_width()),
        users,
    }
}

fn reading<T>(answer: Result<T, NvmlError>) -> Reading<T> {
    match answer {
        Ok(value) => Reading::Known(value),
        Err(
            NvmlError::NotSupported
            | NvmlError::InvalidArg
            | NvmlError::FunctionNotFound
            | NvmlError::FailedToLoadSymbol(_),
        ) => Reading::NotSupported,
        Err(error) => Reading::Unknown(error.to_string()),
    }
}

fn flag(device: &Device<'_>, field: FieldId) -> Reading<bool> {
    let answer = device.field_values_for(&[field]).and_then(|values| {
        let sample = values.into_iter().next().ok_or(NvmlError::NotFound)??;
        match sample.value? {
            SampleValue::U32(value) => Ok(value != 0),
            SampleValue::U64(value) => Ok(value != 0),
            SampleValue::I64(value) => Ok(value != 0),
            SampleValue::F64(_) => Err(NvmlError::Unknown),
        }
    });
    reading(answer)
}
