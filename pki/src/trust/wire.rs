//! Reading binary fields: each behind its length, and nothing left over.

/// A field is not there as it has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Short;

/// What has not been read yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], Short> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        self.take(N)?.try_into().map_err(|_| Short)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Short> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Short> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_be_bytes)
    }

    /// Bytes behind a length of 32 bits, as SSH writes them.
    pub(super) fn string(&mut self) -> Result<&'a [u8], Short> {
        let length = usize::try_from(self.u32()?).map_err(|_| Short)?;
        self.take(length)
    }

    /// A positive whole number as SSH writes it: as short as it can be, with a zero in front of a high bit.
    pub(super) fn mpint(&mut self) -> Result<&'a [u8], Short> {
        match self.string()? {
            [0, rest @ ..] if rest.first().is_some_and(|first| *first >= 0x80) => Ok(rest),
            number @ [1..0x80, ..] => Ok(number),
            _ => Err(Short),
        }
    }

    /// A positive whole number as OpenPGP writes it: its bits, then its bytes.
    pub(super) fn mpi(&mut self) -> Result<&'a [u8], Short> {
        let bits = usize::from(self.u16()?);
        let number = self.take(bits.div_ceil(8))?;
        let leading = number.first().map_or(8, |first| first.leading_zeros() as usize);
        if number.is_empty() || number.len() * 8 - leading != bits { Err(Short) } else { Ok(number) }
    }

    pub(super) const fn end(self) -> Result<(), Short> {
        if self.0.is_empty() { Ok(()) } else { Err(Short) }
    }
}

/// A number in so many bytes, with zeros in front.
pub(super) fn padded<const N: usize>(number: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    bytes.get_mut(N.checked_sub(number.len())?..)?.copy_from_slice(number);
    Some(bytes)
}
