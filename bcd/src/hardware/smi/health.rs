//! The health of GPUs in `nvidia-smi -q -x`, and in the sentences that the tool says beside it.

use super::{
    pci,
    xml::{Met, walk},
};
use crate::hardware::health::{GpuHealth, Health, Reading, User};

/// A word of the tool.
enum Word<'a> {
    Value(&'a str),
    NotSupported,
    Trouble(&'a str),
}

fn word(text: &str) -> Word<'_> {
    let text = text.trim();
    let inner = text.trim_start_matches('[').trim_end_matches(']');
    let unsupported = ["", "N/A", "Not Supported", "Requested functionality has been deprecated"];
    if unsupported.contains(&inner) {
        return Word::NotSupported;
    }
    let sentences =
        ["GPU is lost", "requires reset", "Unable to determine", "Unknown Error", "ERR!", "Error", "Insufficient"];
    if sentences.iter().any(|sentence| inner.contains(sentence)) {
        return Word::Trouble(inner);
    }
    Word::Value(text)
}

fn reading<T>(text: &str, parse: impl Fn(&str) -> Option<T>) -> Reading<T> {
    match word(text) {
        Word::NotSupported => Reading::NotSupported,
        Word::Trouble(said) => Reading::Unknown(said.to_owned()),
        Word::Value(value) => {
            parse(value).map_or_else(|| Reading::Unknown(value.chars().take(80).collect()), Reading::Known)
        }
    }
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

fn lanes(text: &str) -> Option<u32> {
    text.strip_suffix('x').unwrap_or(text).parse().ok()
}

/// Adds a count to a sum. What is unknown stays unknown; what the GPU does not have adds nothing.
fn add(sum: &mut Reading<u64>, more: Reading<u64>) {
    *sum = match (std::mem::take(sum), more) {
        (Reading::Unknown(said), _) | (_, Reading::Unknown(said)) => Reading::Unknown(said),
        (Reading::Known(a), Reading::Known(b)) => Reading::Known(a.saturating_add(b)),
        (Reading::Known(one), Reading::NotSupported) | (Reading::NotSupported, Reading::Known(one)) => {
            Reading::Known(one)
        }
        (Reading::NotSupported, Reading::NotSupported) => Reading::NotSupported,
    };
}

/// Reads what the tool wrote. `None` when it is not its document.
pub(in crate::hardware) fn health(xml: &str) -> Option<Health> {
    let mut health = Health { source: "nvidia-smi".to_owned(), driver: None, gpus: Vec::new() };
    let mut is_log = false;
    walk(xml, |path, met| {
        let ["nvidia_smi_log", path @ ..] = path else { return };
        is_log = true;
        match (path, met) {
            (["driver_version"], Met::Text(text)) => {
                if let Word::Value(version) = word(text) {
                    health.driver = Some(version.to_owned());
                }
            }
            (["gpu"], Met::Begin(tag)) => {
                let id = tag.split('"').nth(1).and_then(pci);
                health.gpus.push(GpuHealth { pci: id, ..GpuHealth::default() });
            }
            (["gpu", "processes", "process_info"], Met::Begin(_)) => {
                if let Some(gpu) = health.gpus.last_mut() {
                    gpu.users.push(User { pid: 0, name: String::new() });
                }
            }
            (["gpu", path @ ..], Met::Text(text)) => {
                if let Some(gpu) = health.gpus.last_mut() {
                    take(gpu, path, text);
                }
            }
            _ => {}
        }
    });
    for gpu in &mut health.gpus {
        gpu.users.retain(|user| user.pid != 0);
    }
    (is_log && (xml.contains("</nvidia_smi_log>") || !health.gpus.is_empty())).then_some(health)
}

fn take(gpu: &mut GpuHealth, path: &[&str], text: &str) {
    if let Word::Trouble(said) = word(text) {
        let lost = said.contains("GPU is lost") || said.contains("requires reset");
        if lost && gpu.lost.is_none() {
            gpu.lost = Some(said.to_owned());
        }
    }
    match path {
        ["uuid"] => {
            if let Word::Value(uuid) = word(text)
                && uuid.starts_with("GPU-")
                && uuid.bytes().skip(4).any(|byte| byte != b'0' && byte != b'-')
            {
                gpu.uuid = Some(uuid.to_owned());
            }
        }
        ["minor_number"] => gpu.minor = text.trim().parse().ok(),
        ["pci", "pci_gpu_link_info", "link_widths", "current_link_width"] => gpu.link_width = reading(text, lanes),
        ["pci", "pci_gpu_link_info", "link_widths", "max_link_width"] => gpu.link_max = reading(text, lanes),
        [
            "ecc_errors",
            "volatile",
            "sram_uncorrectable" | "sram_uncorrectable_parity" | "sram_uncorrectable_secded" | "dram_uncorrectable",
        ]
        | ["ecc_errors", "volatile", "double_bit", "total"] => {
            add(&mut gpu.ecc_uncorrectable, reading(text, |count| count.parse().ok()));
        }
        ["remapped_rows"] => {
            if let Word::Trouble(said) = word(text) {
                gpu.remap_pending = Reading::Unknown(said.to_owned());
                gpu.remap_failure = Reading::Unknown(said.to_owned());
            }
        }
        ["remapped_rows", "remapped_row_pending"] => gpu.remap_pending = reading(text, flag),
        ["remapped_rows", "remapped_row_failure"] => gpu.remap_failure = reading(text, flag),
        // Before there was a remapper, whole pages were retired. The remapper's word comes later in the document.
        ["retired_pages", "pending_retirement" | "pending_blacklist"] if gpu.remap_pending == Reading::NotSupported => {
            gpu.remap_pending = reading(text, flag);
        }
        ["processes", "process_info", "pid"] => {
            if let Some(user) = gpu.users.last_mut() {
                user.pid = text.trim().parse().unwrap_or(0);
            }
        }
        ["processes", "process_info", "process_name"] => {
            if let Some(user) = gpu.users.last_mut() {
                user.name = text.trim().chars().take(200).collect();
            }
        }
        _ => {}
    }
}

/// GPUs that the tool names only to say that it cannot reach them: `Unable to determine the device handle for GPU …`.
pub(in crate::hardware) fn unreachable(said: &str) -> Vec<GpuHealth> {
    let gpu = |line: &str| {
        let rest = line.trim().strip_prefix("Unable to determine the device handle for GPU")?;
        let words = rest.split(|letter: char| letter.is_whitespace() || letter == ',');
        let address = words.map(|word| word.trim_end_matches([':', '.'])).find_map(pci)?;
        let why = rest.rsplit_once(": ").map_or(rest, |(_, why)| why).trim();
        Some(GpuHealth { pci: Some(address), lost: Some(why.chars().take(200).collect()), ..GpuHealth::default() })
    };
    said.lines().filter_map(gpu).collect()
}

/// Whether the tool says that the driver answered and knows no GPU.
pub(in crate::hardware) fn none_found(said: &str) -> bool {
    said.lines().any(|line| line.trim() == "No devices were found")
}

#[cfg(test)]
mod tests;
