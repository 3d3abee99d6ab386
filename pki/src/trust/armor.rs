//! Armour: base64 between two marker lines, in exactly one spelling.
//!
//! Nothing before, between or behind but what has to be there; lines of one width; no second way to write the same bytes.

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Why a text is not armour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ArmorRefusal {
    /// It does not begin with the one marker line.
    #[error("it does not begin with its BEGIN line")]
    Begin,
    /// It does not end with the one marker line.
    #[error("it does not end with its END line")]
    End,
    /// OpenPGP allows lines such as `Comment:` that nothing protects.
    #[error("it has armour headers, which nothing protects")]
    Headers,
    /// Not the one base64 text of its bytes.
    #[error("it is not plain base64 in lines of one width")]
    Base64,
    /// The check sum of OpenPGP.
    #[error("its check sum does not fit")]
    CheckSum,
    /// Without one and without padding `gpg` does not see where the bytes end.
    #[error("it has neither a check sum nor padding at its end, and gpg does not read it")]
    NoCheckSum,
}

/// How an armour is dressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dress {
    /// Marker lines and base64.
    Ssh,
    /// An empty line after the first marker, and perhaps a check sum before the second. One empty line may follow it:
    /// a large forge signs its merges so.
    OpenPgp,
}

/// Bytes in an armour of SSH with this label, in lines as wide as `ssh-keygen` writes them.
pub(super) fn close(bytes: &[u8], label: &str) -> String {
    let text = STANDARD.encode(bytes);
    let lines: Vec<&str> = text.as_bytes().chunks(70).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// The bytes in an armour with this label.
pub(super) fn open(text: &str, label: &str, dress: Dress) -> Result<Vec<u8>, ArmorRefusal> {
    let inside = text.strip_prefix(&format!("-----BEGIN {label}-----\n")).ok_or(ArmorRefusal::Begin)?;
    let inside = inside.strip_suffix('\n').unwrap_or(inside);
    let inside = if dress == Dress::OpenPgp { inside.strip_suffix('\n').unwrap_or(inside) } else { inside };
    let inside = inside.strip_suffix(&format!("\n-----END {label}-----")).ok_or(ArmorRefusal::End)?;
    let (body, sum) = match dress {
        Dress::Ssh => (inside, None),
        Dress::OpenPgp => {
            let body = inside.strip_prefix('\n').ok_or(ArmorRefusal::Headers)?;
            match body.rsplit_once("\n=") {
                Some((body, sum)) => (body, Some(sum)),
                None => (body, None),
            }
        }
    };
    let bytes = base64(body)?;
    if dress == Dress::OpenPgp && sum.is_none() && !body.ends_with('=') {
        return Err(ArmorRefusal::NoCheckSum);
    }
    if let Some(sum) = sum {
        let sum = STANDARD.decode(sum).map_err(|_| ArmorRefusal::CheckSum)?;
        if sum != crc24(&bytes) {
            return Err(ArmorRefusal::CheckSum);
        }
    }
    Ok(bytes)
}

/// Base64 in lines of one width, the last one perhaps shorter.
fn base64(body: &str) -> Result<Vec<u8>, ArmorRefusal> {
    let mut lines = body.split('\n').peekable();
    let width = lines.peek().map_or(0, |first| first.len());
    let mut joined = String::with_capacity(body.len());
    while let Some(line) = lines.next() {
        let last = lines.peek().is_none();
        if line.is_empty() || line.len() > width || width > 76 || (!last && line.len() != width) {
            return Err(ArmorRefusal::Base64);
        }
        joined.push_str(line);
    }
    // The engine takes the standard alphabet with padding, and no bits behind the last byte.
    STANDARD.decode(joined).map_err(|_| ArmorRefusal::Base64)
}

/// The check sum of OpenPGP.
pub(super) fn crc24(bytes: &[u8]) -> [u8; 3] {
    let mut sum: u32 = 0x00b7_04ce;
    for byte in bytes {
        sum ^= u32::from(*byte) << 16;
        for _ in 0..8 {
            sum <<= 1;
            if sum & 0x0100_0000 != 0 {
                sum ^= 0x0186_4cfb;
            }
        }
    }
    let [_, high, middle, low] = sum.to_be_bytes();
    [high, middle, low]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ssh(text: &str) -> Result<Vec<u8>, ArmorRefusal> {
        open(text, "SSH SIGNATURE", Dress::Ssh)
    }

    #[test]
    fn one_spelling_is_read_and_others_are_refused() {
        let good = "-----BEGIN SSH SIGNATURE-----\nAAEC\nAwQ=\n-----END SSH SIGNATURE-----";
        assert_eq!(ssh(good), Ok(vec![0, 1, 2, 3, 4]));
        assert_eq!(ssh(&format!("{good}\n")), Ok(vec![0, 1, 2, 3, 4]));
        for (text, refusal) in [
            (format!("junk\n{good}"), ArmorRefusal::Begin),
            (format!("{good}\n\n"), ArmorRefusal::End),
            (format!("{good}\njunk"), ArmorRefusal::End),
            (good.replace('\n', "\r\n"), ArmorRefusal::Begin),
            (good.replace("AAEC\n", "AA\nEC\n"), ArmorRefusal::Base64),
            (good.replace("AAEC", "AA C"), ArmorRefusal::Base64),
            (good.replace("AwQ=", "AwR="), ArmorRefusal::Base64),
            (good.replace("AwQ=", "AwQ"), ArmorRefusal::Base64),
            (good.replace("AwQ=\n", "AwQ=\n\n"), ArmorRefusal::Base64),
        ] {
            assert_eq!(ssh(&text), Err(refusal), "{text:?}");
        }
    }

    #[test]
    fn openpgp_armour_has_no_headers_and_a_sum_that_fits() {
        let pgp = |text: &str| open(text, "PGP SIGNATURE", Dress::OpenPgp);
        let sum = STANDARD.encode(crc24(&[0, 1, 2]));
        let good = format!("-----BEGIN PGP SIGNATURE-----\n\nAAEC\n={sum}\n-----END PGP SIGNATURE-----\n");
        assert_eq!(pgp(&good), Ok(vec![0, 1, 2]));
        assert_eq!(pgp(&format!("{good}\n")), Ok(vec![0, 1, 2]), "one empty line behind it");
        assert_eq!(pgp(&format!("{good}\n\n")), Err(ArmorRefusal::End));
        assert_eq!(pgp(&good.replace("\n\nAA", "\nComment: me\n\nAA")), Err(ArmorRefusal::Headers));
        assert_eq!(pgp(&good.replace("AAEC", "AAED")), Err(ArmorRefusal::CheckSum));
        let without = good.replace(&format!("={sum}\n"), "");
        assert_eq!(pgp(&without), Err(ArmorRefusal::NoCheckSum));
        assert_eq!(pgp(&without.replace("AAEC", "AAE=")), Ok(vec![0, 1]), "its end is seen");
    }
}
