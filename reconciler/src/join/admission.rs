//! The document that would let a waiting machine in, ready to commit.

use std::fmt::Write as _;

use pki::hardware::{JoinClaims, plain_serial};
use schema::attested::Attested;

/// A `node` document for a machine: by what it proved, else by the strongest identifier that it has. `None` when it has none
/// at all.
#[must_use]
pub fn document(name: &str, pool: &str, attested: &[Attested], claims: &JoinClaims) -> Option<String> {
    let usable = |text: &Option<String>| {
        text.as_deref().map(str::trim).filter(|text| plain_serial(text).is_some()).map(str::to_owned)
    };
    let hint = if let Some(attested) = attested.first() {
        // One is enough, and the machine may not show the others the next time.
        format!("attested {}", quoted(&attested.to_string()))
    } else if let Some(serial) = usable(&claims.dmi.serial) {
        format!("serial {}", quoted(&serial))
    } else if let Some(serial) = usable(&claims.dmi.board_serial) {
        format!("board-serial {}", quoted(&serial))
    } else {
        let mac = claims.nics.iter().find_map(|nic| nic.mac.as_deref())?;
        format!("mac {}", quoted(&mac.to_ascii_lowercase()))
    };
    Some(format!("node {} {{\n  pool {}\n  {hint}\n}}\n", quoted(name), quoted(pool)))
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(letter);
            }
            letter if letter.is_control() => {
                write!(quoted, "\\u{{{:x}}}", u32::from(letter)).expect("a string takes anything");
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use schema::inventory::{Dmi, Nic};

    use super::*;

    #[test]
    fn the_strongest_identifier_is_proposed() {
        let mut claims = JoinClaims {
            dmi: Dmi {
                serial: Some("Default string".into()),
                board_serial: Some(" BOARD17 ".into()),
                ..Dmi::default()
            },
            nics: vec![Nic { name: "eth0".into(), mac: Some("AA:BB:CC:00:11:22".into()), speed_mbps: None }],
            ..JoinClaims::default()
        };
        let text = document("h100-1", "h100", &[], &claims).expect("a document");
        assert_eq!(text, "node \"h100-1\" {\n  pool \"h100\"\n  board-serial \"BOARD17\"\n}\n");
        claims.dmi.board_serial = None;
        assert!(document("h100-1", "h100", &[], &claims).expect("a document").contains("mac \"aa:bb:cc:00:11:22\""));
        claims.nics.clear();
        assert_eq!(document("h100-1", "h100", &[], &claims), None);
    }

    #[test]
    fn what_was_proven_goes_before_what_is_said() {
        let claims =
            JoinClaims { dmi: Dmi { serial: Some("PF3K0X91".into()), ..Dmi::default() }, ..JoinClaims::default() };
        let attested = ["aws:123456789012/i-0abc".parse().expect("an identity")];
        let text = document("n", "p", &attested, &claims).expect("a document");
        assert_eq!(text, "node \"n\" {\n  pool \"p\"\n  attested \"aws:123456789012/i-0abc\"\n}\n");
    }

    #[test]
    fn hostile_texts_stay_inside_their_quotes() {
        let claims = JoinClaims {
            dmi: Dmi { serial: Some("X\"}\nremoved \"pool/a\"".into()), ..Dmi::default() },
            ..JoinClaims::default()
        };
        let text = document("n", "p", &[], &claims).expect("a document");
        assert!(text.contains("serial \"X\\\"}\\u{a}removed \\\"pool/a\\\"\""));
    }
}
