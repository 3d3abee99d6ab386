//! Quotes: what a TPM signed, and that it was about this data.

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

use super::{
    KIND, Refusal,
    public::{AttestationKey, ECDSA, Reader, SHA256, coordinate},
};

/// What every attestation begins with: nothing else that the key may sign does.
const MAGIC: u32 = 0xff54_4347;
const QUOTE: u16 = 0x8018;
/// Clock, resets, restarts and whether the clock is safe; and the firmware's version.
const CLOCK_AND_FIRMWARE: usize = 17 + 8;

/// The data that was quoted, if the key signed it.
pub(super) fn verify<'q>(key: &AttestationKey, quote: &'q [u8], signature: &[u8]) -> Result<&'q [u8], Refusal> {
    let mut reader = Reader::new(signature);
    if reader.u16()? != ECDSA || reader.u16()? != SHA256 {
        return Err(Refusal::Unsupported(KIND));
    }
    let fixed = [coordinate(reader.sized()?)?, coordinate(reader.sized()?)?].concat();
    reader.end()?;
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.point)
        .verify(quote, &fixed)
        .map_err(|_| Refusal::NotProven(KIND))?;

    let mut reader = Reader::new(quote);
    if reader.u32()? != MAGIC || reader.u16()? != QUOTE {
        return Err(Refusal::Malformed(KIND));
    }
    reader.sized()?;
    let data = reader.sized()?;
    reader.take(CLOCK_AND_FIRMWARE)?;
    for _ in 0..reader.u32()?.min(16) {
        reader.u16()?;
        let length = reader.take(1)?[0];
        reader.take(usize::from(length))?;
    }
    reader.sized()?;
    reader.end()?;
    Ok(data)
}
