//! What a bundle of logs is and how one gets it. Pure.

use schema::command::{payload::is_object, result::LogBundle};

use crate::output::text::printable;

/// The bundle of a machine: its size, how to fetch it, and what is not whole in it.
pub(super) fn text(who: &str, bundle: &LogBundle) -> String {
    let cut = if bundle.truncated { ", the oldest left out" } else { "" };
    let mut lines = vec![format!("{} in {} parts{cut}, {}", size(bundle.bytes), bundle.parts.len(), bundle.digest)];
    lines.extend(match (&bundle.object, &bundle.path) {
        // What becomes part of a command line is held against its form.
        (Some(object), _) if bundle.uploaded && is_object(object) => {
            Some(format!("fetch it with: aws s3 cp {object} ."))
        }
        (None, Some(path)) => {
            let path = printable(path);
            Some(format!("it is on the machine: scp '{}:{path}' .", printable(who)))
        }
        (_, _) if bundle.uploaded => Some("it was uploaded".to_owned()),
        _ => None,
    });
    let problem = |part: &schema::command::result::LogPart| {
        Some(format!("{}: {}", printable(&part.name), printable(part.problem.as_deref()?)))
    };
    lines.extend(bundle.parts.iter().filter_map(problem));
    lines.join("\n  ")
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes / 1024),
        _ => format!("{}.{} MiB", bytes / 1_048_576, bytes % 1_048_576 * 10 / 1_048_576),
    }
}

#[cfg(test)]
mod tests {
    use schema::{command::result::LogPart, digest::Digest};

    use super::*;

    fn bundle() -> LogBundle {
        let part = |name: &str, problem: Option<&str>| LogPart {
            name: name.to_owned(),
            bytes: 10,
            left_out: 0,
            problem: problem.map(str::to_owned),
        };
        LogBundle {
            bytes: 1_300_000,
            digest: Digest::of("x"),
            truncated: true,
            parts: vec![part("bcd/about.json", None), part("journal.txt", Some("program-missing: no journalctl"))],
            path: None,
            uploaded: false,
            object: None,
        }
    }

    #[test]
    fn a_bundle_says_how_it_is_fetched_from_where_it_is() {
        let here = LogBundle { path: Some("/var/lib/bcd/bundles/cmd_1.tar".to_owned()), ..bundle() };
        let there =
            LogBundle { uploaded: true, object: Some("s3://bundles/fra1/node_1/cmd_1.tar".to_owned()), ..bundle() };
        let strange = LogBundle { object: Some("s3://b/x; reboot".to_owned()), ..there.clone() };
        insta::assert_snapshot!([here, there, strange].map(|bundle| text("gpu-1", &bundle)).join("\n--\n"));
    }
}
