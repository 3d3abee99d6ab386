//! `nvidia-smi`, the second source: `-q -x` for GPUs and `topo -m` for links.
//!
//! The output of a sick driver is full of sentences where values belong; such a value is absent and the rest stands.

use schema::inventory::{Gpu, Link};

use self::xml::{Met, walk};

pub(super) mod health;
mod xml;

/// Whether a text of the driver says that it does not know.
fn value(text: &str) -> Option<&str> {
    let text = text.trim();
    let inner = text.trim_start_matches('[').trim_end_matches(']');
    let unknown = ["", "N/A", "Not Supported", "Unknown Error", "ERR!", "GPU is lost", "None", "Not Found", "Unknown"];
    let lost =
        inner.contains("GPU is lost") || inner.contains("Unable to determine") || inner.starts_with("GPU requires");
    (!unknown.contains(&inner) && !lost && !inner.bytes().all(|byte| matches!(byte, b'0' | b'-'))).then_some(text)
}

/// A PCI address as the kernel writes it: four digits of domain, lower case.
pub(crate) fn pci(text: &str) -> Option<String> {
    let lower = text.trim().to_ascii_lowercase();
    let (domain, rest) = lower.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    let shape = rest.len() == 7 && rest.as_bytes()[2] == b':' && rest.as_bytes()[5] == b'.';
    let digits = rest.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':' || byte == b'.');
    (shape && digits).then(|| format!("{domain:04x}:{rest}"))
}

/// The GPUs in `nvidia-smi -q -x`.
pub(super) fn gpus(xml: &str) -> Vec<Gpu> {
    let mut gpus = Vec::new();
    walk(xml, |path, met| match met {
        Met::Begin(tag) if path == ["nvidia_smi_log", "gpu"] => {
            let id = tag.split('"').nth(1).and_then(pci);
            gpus.push(Gpu { pci: id, seen_by: vec!["nvidia-smi".to_owned()], ..Gpu::default() });
        }
        Met::Text(text) => {
            if let Some(gpu) = gpus.last_mut() {
                take(gpu, path, text);
            }
        }
        Met::Begin(_) => {}
    });
    gpus
}

fn take(gpu: &mut Gpu, path: &[&str], text: &str) {
    let Some(text) = value(text) else { return };
    match path {
        ["nvidia_smi_log", "gpu", "product_name"] => gpu.model = Some(text.to_owned()),
        ["nvidia_smi_log", "gpu", "uuid"] => gpu.uuid = Some(text.to_owned()),
        ["nvidia_smi_log", "gpu", "serial"] => gpu.serial = Some(text.to_owned()),
        ["nvidia_smi_log", "gpu", "fb_memory_usage", "total"] => {
            gpu.memory_mib = text.strip_suffix(" MiB").and_then(|number| number.parse().ok());
        }
        _ => {}
    }
}

/// The links between GPUs in `nvidia-smi topo -m`, where rows and columns are named `GPU0`, `GPU1` …; `uuids` by index.
pub(super) fn links(matrix: &str, uuids: &[Option<String>]) -> Option<Vec<Link>> {
    let plain = without_escapes(matrix);
    let mut lines = plain.lines();
    let header: Vec<usize> = lines
        .by_ref()
        .find(|line| line.split_whitespace().next().is_some_and(|word| index(word).is_some()))?
        .split_whitespace()
        .map_while(index)
        .collect();
    let mut links = Vec::new();
    for line in lines {
        let mut words = line.split_whitespace();
        let Some(row) = words.next().and_then(index) else { continue };
        for (column, kind) in header.iter().zip(words) {
            let ends = (uuids.get(row).cloned().flatten(), uuids.get(*column).cloned().flatten());
            if let (true, (Some(a), Some(b))) = (*column > row && kind != "X", ends) {
                links.push(Link { a, b, kind: kind.to_owned() });
            }
        }
    }
    Some(links)
}

fn index(word: &str) -> Option<usize> {
    word.strip_prefix("GPU").filter(|digits| digits.len() <= 3)?.parse().ok()
}

fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter == '\u{1b}' {
            letters.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(letter);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEALTHY: &str = include_str!("testdata/smi-a100-pair.xml");
    const LOST: &str = include_str!("testdata/smi-gb200-lost.xml");
    const MATRIX: &str = include_str!("testdata/topo-hgx-h100.txt");

    #[test]
    fn a_healthy_pair_is_read() {
        let gpus = gpus(HEALTHY);
        assert_eq!(gpus.len(), 2);
        for gpu in &gpus {
            assert!(gpu.uuid.as_deref().is_some_and(|uuid| uuid.starts_with("GPU-")), "{gpu:?}");
            assert!(gpu.model.as_deref().is_some_and(|model| model.contains("A100")), "{gpu:?}");
            assert!(gpu.pci.is_some() && gpu.memory_mib.is_some(), "{gpu:?}");
        }
    }

    #[test]
    fn a_lost_gpu_is_still_there_and_the_others_keep_their_values() {
        let gpus = gpus(LOST);
        assert!(gpus.len() >= 2);
        assert!(gpus[0].uuid.is_some() && gpus[0].memory_mib.is_some(), "{:?}", gpus[0]);
        assert!(gpus[1].pci.is_some(), "{:?}", gpus[1]);
        let said = serde_json::to_string(&gpus).expect("serialises");
        assert!(!said.contains("lost"), "{said}");
    }

    #[test]
    fn what_the_driver_does_not_know_is_absent() {
        for text in ["[N/A]", "N/A", "[Not Supported]", "ERR!", "[Unknown Error]", "GPU is lost", "00000000-0000", ""] {
            assert_eq!(value(text), None, "{text}");
        }
        assert_eq!(value(" 1653 "), Some("1653"));
    }

    #[test]
    fn pci_addresses_become_the_kernels() {
        assert_eq!(pci("00000000:18:00.0").as_deref(), Some("0000:18:00.0"));
        assert_eq!(pci("0000000F:01:00.0").as_deref(), Some("000f:01:00.0"));
        assert_eq!(pci("GPU is lost"), None);
    }

    #[test]
    fn a_matrix_with_escapes_and_network_columns_gives_gpu_links_only() {
        let uuids: Vec<_> = (0..8).map(|index| Some(format!("GPU-{index}"))).collect();
        let links = links(MATRIX, &uuids).expect("a matrix");
        assert_eq!(links.len(), 28);
        assert!(links.iter().all(|link| link.kind.starts_with("NV")), "{links:?}");
        assert_eq!(super::links("nonsense", &uuids), None);
    }

    #[test]
    fn torn_documents_do_no_harm() {
        for end in (0..HEALTHY.len()).step_by(97).filter(|end| HEALTHY.is_char_boundary(*end)) {
            gpus(&HEALTHY[..end]);
        }
    }
}
