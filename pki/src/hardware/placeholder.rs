//! What vendors leave in place of an identifier, and how an identifier is written.

/// Letters and digits of texts that stand where a serial number should.
const TEXTS: &[&str] = &[
    "ASSETTAG",
    "BASEBOARDSERIALNUMBER",
    "BSN12345678901234567",
    "CHASSISSERIALNUMBER",
    "DEFAULT",
    "DEFAULTSTRING",
    "EMPTY",
    "EVAL",
    "INVALID",
    "MBSERIAL",
    "NB1234567890",
    "NIL",
    "NONE",
    "NOTAPPLICABLE",
    "NOTAVAILABLE",
    "NOTDEFINED",
    "NOTPRESENT",
    "NOTSET",
    "NOTSPECIFIED",
    "NULL",
    "OEM",
    "OEMDEFAULT",
    "OEMSERIAL",
    "SERIAL",
    "SERIALNUMBER",
    "SERNUM0",
    "SYSTEMMANUFACTURER",
    "SYSTEMPRODUCTNAME",
    "SYSTEMSERIALNUMBER",
    "TBD",
    "TBDBYOEM",
    "TOBEFILLED",
    "TOBEFILLEDBYOEM",
    "UNDEFINED",
    "UNKNOWN",
    "UNSPECIFIED",
];

/// UUIDs that firmware authors typed, in the byte order that sorts first.
const UUIDS: &[&str] = &[
    "00020003000400050006000700080009",
    "0123456789ABCDEF0123456789ABCDEF",
    "12345678123456781234567812345678",
    "123456781234567890ABCDDEEFAABBCC",
    "12345678123456789012123456789012",
    "12345678123412341234123456789012",
    "12345678123412341234123456789ABC",
];

/// A serial number without case and padding, or nothing when it is a placeholder.
pub(super) fn serial(text: &str) -> Option<String> {
    let letters: String =
        text.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_uppercase()).collect();
    let is_placeholder = letters.len() < 4
        || letters.len() > 128
        || is_one_letter(&letters)
        || is_counting(&letters)
        || TEXTS.contains(&letters.as_str())
        || letters.starts_with("TOBEFILLED")
        || letters.starts_with("ASSETTAGNUMBER");
    (!is_placeholder).then_some(letters)
}

/// A UUID in the byte order that sorts first (firmware writes either), or nothing when it is a placeholder.
pub(super) fn uuid(text: &str) -> Option<String> {
    let digits: String =
        text.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_uppercase()).collect();
    if digits.len() != 32 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let other = other_byte_order(&digits)?;
    let canonical = if other < digits { other } else { digits };
    let one_byte = canonical.as_bytes().chunks(2).all(|byte| byte == &canonical.as_bytes()[..2]);
    let is_placeholder = one_byte || UUIDS.contains(&canonical.as_str()) || is_counting(&canonical);
    (!is_placeholder).then_some(canonical)
}

/// The same UUID with the first three fields in the other byte order.
pub(super) fn other_byte_order(digits: &str) -> Option<String> {
    if digits.len() != 32 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    Some(order.iter().map(|byte| &digits[byte * 2..byte * 2 + 2]).collect())
}

fn is_one_letter(letters: &str) -> bool {
    letters.bytes().all(|letter| Some(&letter) == letters.as_bytes().first())
}

/// 0123456789, 1234567890123, 12345678…: the keys from left to right.
fn is_counting(letters: &str) -> bool {
    letters.bytes().all(|letter| letter.is_ascii_digit())
        && letters.as_bytes().windows(2).all(|pair| (pair[0] - b'0' + 1) % 10 == pair[1] - b'0')
}
