//! Facts about the health that `nvidia-smi` tells.

use std::{fs, path::Path};

use super::*;

const HEALTHY: &str = include_str!("../../testdata/smi-a100-pair.xml");
const LOST: &str = include_str!("../../testdata/smi-gb200-lost.xml");

#[test]
fn a_healthy_pair_is_healthy() {
    let health = health(HEALTHY).expect("a document");
    assert!(health.driver.is_some());
    assert_eq!(health.gpus.len(), 2);
    for gpu in &health.gpus {
        assert_eq!(gpu.lost, None);
        assert_eq!(gpu.ecc_uncorrectable, Reading::Known(0));
        assert_eq!((&gpu.remap_pending, &gpu.remap_failure), (&Reading::Known(false), &Reading::Known(false)));
        assert_eq!((&gpu.link_width, &gpu.link_max), (&Reading::Known(16), &Reading::Known(16)));
        assert!(gpu.users.is_empty() && gpu.minor.is_some() && gpu.uuid.is_some());
    }
}

#[test]
fn a_lost_gpu_is_lost_and_the_other_one_keeps_its_values() {
    let health = health(LOST).expect("a document");
    assert_eq!(health.gpus.len(), 2);
    assert_eq!(health.gpus[0].lost, None);
    assert!(health.gpus[0].ecc_uncorrectable.known().is_some());
    assert_eq!(health.gpus[1].lost.as_deref(), Some("GPU is lost"));
    assert!(matches!(&health.gpus[1].ecc_uncorrectable, Reading::Unknown(said) if said == "GPU is lost"));
    assert!(health.gpus[1].pci.is_some());
}

#[test]
fn processes_are_users_whatever_they_do() {
    let xml = "<nvidia_smi_log><gpu id=\"00000000:53:00.0\"><processes><process_info><pid>835</pid><type>G</type>\
               <process_name>/usr/lib/Xorg</process_name></process_info><process_info><pid>N/A</pid></process_info>\
               </processes></gpu></nvidia_smi_log>";
    let health = health(xml).expect("a document");
    assert_eq!(health.gpus[0].users, [User { pid: 835, name: "/usr/lib/Xorg".to_owned() }]);
    assert_eq!(health.gpus[0].pci.as_deref(), Some("0000:53:00.0"));
}

#[test]
fn an_old_gpus_retired_pages_stand_for_rows() {
    let gpu = |remapper: &str, pages: &str| {
        let xml = format!(
            "<nvidia_smi_log><gpu id=\"1\"><retired_pages><pending_retirement>{pages}</pending_retirement></retired_pages>\
             <remapped_rows>{remapper}</remapped_rows></gpu></nvidia_smi_log>"
        );
        health(&xml).expect("a document").gpus.remove(0).remap_pending
    };
    assert_eq!(gpu("N/A", "Yes"), Reading::Known(true));
    assert_eq!(gpu("<remapped_row_pending>No</remapped_row_pending>", "N/A"), Reading::Known(false));
    assert_eq!(gpu("<remapped_row_pending>Yes</remapped_row_pending>", "No"), Reading::Known(true));
    assert_eq!(gpu("N/A", "N/A"), Reading::NotSupported);
}

#[test]
fn words_of_the_driver_are_values_absences_or_troubles() {
    let number = |text: &str| reading::<u64>(text, |text| text.parse().ok());
    assert_eq!(number(" 0 "), Reading::Known(0));
    for absent in ["N/A", "[N/A]", "[Not Supported]", ""] {
        assert_eq!(number(absent), Reading::NotSupported, "{absent}");
    }
    for trouble in ["ERR!", "[Unknown Error]", "GPU is lost", "[GPU requires reset]", "many"] {
        assert!(matches!(number(trouble), Reading::Unknown(_)), "{trouble}");
    }
}

#[test]
fn gpus_that_only_a_sentence_names_are_found() {
    for (line, pci) in [
        ("Unable to determine the device handle for GPU 0000:1A:00.0: GPU is lost.  Reboot the system", "0000:1a:00.0"),
        ("Unable to determine the device handle for GPU7: 0000:BA:00.0: Unknown Error", "0000:ba:00.0"),
        ("Unable to determine the device handle for GPU0000:17:00.0: Unknown Error", "0000:17:00.0"),
    ] {
        let gpus = unreachable(line);
        assert_eq!(gpus.len(), 1, "{line}");
        assert_eq!(gpus[0].pci.as_deref(), Some(pci));
        assert!(gpus[0].lost.is_some());
    }
    assert!(unreachable("NVIDIA-SMI has failed").is_empty());
}

#[test]
fn torn_and_foreign_documents_do_no_harm() {
    for end in (0..LOST.len()).step_by(89).filter(|end| LOST.is_char_boundary(*end)) {
        health(&LOST[..end]);
    }
    for text in ["", "<html><gpu></gpu></html>", "<nvidia_smi_log>", "No devices were found"] {
        assert_eq!(health(text), None, "{text}");
    }
    assert!(none_found("No devices were found\n"));
}

/// Collected documents; beside the repository where they are at all.
#[test]
fn collected_documents_are_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/cases/gpu");
    let Ok(entries) = fs::read_dir(&folder) else {
        eprintln!("skipped: the collected documents are not beside the repository");
        return;
    };
    let read = |name: &str| health(&fs::read_to_string(folder.join(name)).expect("a document")).expect("is read");
    let mut count = 0;
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "xml"))
    {
        let text = fs::read_to_string(&path).expect("a document");
        let health = health(&text).unwrap_or_else(|| panic!("{} is not read", path.display()));
        assert!(!health.gpus.is_empty(), "{}", path.display());
        let lost = health.gpus.iter().filter(|gpu| gpu.lost.is_some()).count();
        assert_eq!(lost, usize::from(path.ends_with("smi-qx-gb200-lost.xml")), "{}", path.display());
        count += 1;
    }
    assert!(count > 10, "{count} documents");
    assert_eq!(read("smi-qx-h100.xml").gpus.len(), 8);
    let (t4, mig) = (read("smi-qx-t4.xml"), read("smi-nd-a100-sxm4-mig.xml"));
    assert_eq!((&t4.gpus[0].link_width, &t4.gpus[0].link_max), (&Reading::Known(8), &Reading::Known(16)));
    assert_eq!(
        (&t4.gpus[0].remap_pending, &t4.gpus[0].remap_failure),
        (&Reading::Known(false), &Reading::NotSupported)
    );
    assert_eq!((mig.gpus.len(), &mig.gpus[0].ecc_uncorrectable), (1, &Reading::NotSupported));
    let sparse = read("smi-nd-rtx-pro-6000-driver-580.xml");
    assert_eq!(sparse.gpus[0].ecc_uncorrectable, Reading::NotSupported);
    // Two GPUs of one module share a serial number, and still are two.
    let gb200 = read("smi-qx-gb200.xml");
    let ids: std::collections::BTreeSet<_> = gb200.gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
    assert_eq!((gb200.gpus.len(), ids.len()), (4, 4));
}
