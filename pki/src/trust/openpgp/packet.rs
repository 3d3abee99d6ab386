//! The frame of OpenPGP: packets, and the parts of a signature packet.

use crate::trust::wire::{Reader, Short};

pub(super) const SIGNATURE: u8 = 2;
pub(super) const PUBLIC_KEY: u8 = 6;
pub(super) const PUBLIC_SUBKEY: u8 = 14;

pub(super) const CREATED: u8 = 2;
pub(super) const EXPIRES: u8 = 3;
pub(super) const ISSUER: u8 = 16;
pub(super) const ISSUER_FINGERPRINT: u8 = 33;

/// The next packet: its tag and its body. Lengths are said up front, never in pieces.
pub(super) fn next<'a>(rest: &mut Reader<'a>) -> Result<(u8, &'a [u8]), Short> {
    let head = rest.byte()?;
    let (tag, length) = match head {
        0xc0.. => (head & 0x3f, length(rest)?),
        0x80.. => {
            let length = match head & 3 {
                0 => rest.byte()?.into(),
                1 => rest.u16()?.into(),
                2 => rest.u32()?,
                _ => return Err(Short),
            };
            ((head >> 2) & 0x0f, length)
        }
        _ => return Err(Short),
    };
    Ok((tag, rest.take(usize::try_from(length).map_err(|_| Short)?)?))
}

/// A length of one, two or five bytes.
fn length(rest: &mut Reader<'_>) -> Result<u32, Short> {
    match rest.byte()? {
        short @ 0..192 => Ok(short.into()),
        high @ 192..224 => Ok(((u32::from(high) - 192) << 8) + u32::from(rest.byte()?) + 192),
        255 => rest.u32(),
        224..=254 => Err(Short),
    }
}

/// One part of a signature packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subpacket<'a> {
    pub(super) kind: u8,
    pub(super) critical: bool,
    pub(super) body: &'a [u8],
}

/// All parts of an area.
pub(super) fn subpackets(area: &[u8]) -> Result<Vec<Subpacket<'_>>, Short> {
    let mut rest = Reader(area);
    let mut found = Vec::new();
    while !rest.0.is_empty() {
        // A part may be as long as two bytes can say, where a packet's length has other meanings.
        let length = match rest.byte()? {
            short @ 0..192 => usize::from(short),
            255 => usize::try_from(rest.u32()?).map_err(|_| Short)?,
            high => ((usize::from(high) - 192) << 8) + usize::from(rest.byte()?) + 192,
        };
        let [kind, body @ ..] = rest.take(length)? else { return Err(Short) };
        found.push(Subpacket { kind: kind & 0x7f, critical: kind & 0x80 != 0, body });
    }
    Ok(found)
}
