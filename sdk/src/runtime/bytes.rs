//! Reading and writing of explicit little-endian formats.

use super::error::RuntimeError;

/// Appends fields.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A length of four bytes, then the bytes.
    pub(super) fn counted(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX)).raw(bytes)
    }

    pub(super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }

    /// The bytes so far, followed by their checksum.
    pub(super) fn finish_with_checksum(&mut self) -> Vec<u8> {
        let checksum = crc32fast::hash(&self.0);
        self.u32(checksum).finish()
    }
}

/// Takes fields off the front.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads the version byte, which must be 1.
    pub(super) fn new(what: &'static str, bytes: &'a [u8]) -> Result<Self, RuntimeError> {
        Ok(Self::up_to(1, what, bytes)?.1)
    }

    /// Reads the version byte, which must be from 1 to `newest`.
    fn up_to(newest: u8, what: &'static str, bytes: &'a [u8]) -> Result<(u8, Self), RuntimeError> {
        let mut reader = Self { what, rest: bytes };
        match reader.u8()? {
            version if (1..=newest).contains(&version) => Ok((version, reader)),
            version => Err(reader.refuse(format!("version {version} is unknown"))),
        }
    }

    /// As [`Self::new`], of any version from 1 to `newest`, and of bytes that end with their checksum.
    pub(super) fn with_checksum(newest: u8, what: &'static str, bytes: &'a [u8]) -> Result<(u8, Self), RuntimeError> {
        // The version comes first: a newer one may have another way to end.
        Self::up_to(newest, what, bytes)?;
        let mut whole = Self { what, rest: bytes };
        let checked = whole.take(bytes.len().saturating_sub(4))?;
        let checksum = whole.u32()?;
        if crc32fast::hash(checked) != checksum {
            return Err(whole.refuse("its checksum is wrong"));
        }
        Self::up_to(newest, what, checked)
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], RuntimeError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(|| self.refuse("it is cut short"))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], RuntimeError> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| self.refuse("it is cut short"))
    }

    pub(super) fn u8(&mut self) -> Result<u8, RuntimeError> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u32(&mut self) -> Result<u32, RuntimeError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, RuntimeError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn counted(&mut self) -> Result<&'a [u8], RuntimeError> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    pub(super) fn end(self) -> Result<(), RuntimeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.refuse("something follows its end")) }
    }

    pub(super) fn refuse(&self, why: impl ToString) -> RuntimeError {
        RuntimeError::Undecodable { what: self.what, why: why.to_string() }
    }
}
