//! Encoding of a packet's fields: numbers little-endian, a text as a `u16` length and UTF-8 bytes.

use super::{
    HELLO_MAGIC, HelloError, JobClass, NO, NO_ANSWER, NO_SLOT, NO_USER, TEXT_BYTES_MAX, YES,
    peer_version,
};
use crate::VERSION;

pub(super) struct Writer {
    pub(super) bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn new(kind: u8) -> Self {
        let mut bytes = HELLO_MAGIC.to_le_bytes().to_vec();
        bytes.extend_from_slice(&VERSION.major.to_le_bytes());
        bytes.extend_from_slice(&VERSION.minor.to_le_bytes());
        bytes.push(kind);
        Self { bytes }
    }

    pub(super) fn class(&mut self, class: JobClass) {
        self.bytes.push(u8::from(class == JobClass::HighPriority));
    }

    pub(super) fn slot(&mut self, slot: Option<u16>) {
        let slot = slot.unwrap_or(NO_SLOT);
        self.bytes.extend_from_slice(&slot.to_le_bytes());
    }

    pub(super) fn user(&mut self, user: Option<u32>) {
        let user = user.unwrap_or(NO_USER);
        self.bytes.extend_from_slice(&user.to_le_bytes());
    }

    pub(super) fn answer(&mut self, answer: Option<bool>) {
        self.bytes.push(match answer {
            None => NO_ANSWER,
            Some(false) => NO,
            Some(true) => YES,
        });
    }

    /// Appends a text, cut at a character boundary if it is too long.
    pub(super) fn text(&mut self, text: &str) {
        let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        self.bytes
            .extend_from_slice(&(text.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn open(packet: &'a [u8]) -> Result<(u8, Self), HelloError> {
        let peer = peer_version(packet).ok_or(HelloError::Malformed("wrong magic"))?;
        if !peer.is_compatible(VERSION) {
            return Err(HelloError::Version { peer });
        }
        let mut reader = Self { rest: &packet[8..] };
        Ok((reader.byte()?, reader))
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], HelloError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(HelloError::Malformed("cut short"))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], HelloError> {
        self.take(N)?
            .try_into()
            .map_err(|_| HelloError::Malformed("cut short"))
    }

    pub(super) fn byte(&mut self) -> Result<u8, HelloError> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn text(&mut self) -> Result<String, HelloError> {
        let length = usize::from(u16::from_le_bytes(self.array()?));
        if length > TEXT_BYTES_MAX {
            return Err(HelloError::Malformed("text too long"));
        }
        let bytes = self.take(length)?.to_vec();
        String::from_utf8(bytes).map_err(|_| HelloError::Malformed("text is not UTF-8"))
    }

    pub(super) fn class(&mut self) -> Result<JobClass, HelloError> {
        match self.byte()? {
            0 => Ok(JobClass::BestEffort),
            1 => Ok(JobClass::HighPriority),
            _ => Err(HelloError::Malformed("unknown class")),
        }
    }

    /// A text field added to the message by a later version: `None` if the peer does not know it.
    pub(super) fn later_text(&mut self) -> Result<Option<String>, HelloError> {
        match self.rest {
            [] => Ok(None),
            _ => self.text().map(Some),
        }
    }

    pub(super) fn later_slot(&mut self) -> Result<Option<u16>, HelloError> {
        match self.rest {
            [] => Ok(None),
            _ => Ok(Some(u16::from_le_bytes(self.array()?)).filter(|&slot| slot != NO_SLOT)),
        }
    }

    pub(super) fn later_flag(&mut self) -> Result<bool, HelloError> {
        match self.rest {
            [] => Ok(false),
            _ => self.array::<1>().map(|[flag]| flag != 0),
        }
    }

    pub(super) fn later_answer(&mut self) -> Result<Option<bool>, HelloError> {
        match self.rest {
            [] => Ok(None),
            _ => self.array::<1>().map(|[answer]| match answer {
                NO => Some(false),
                YES => Some(true),
                _ => None,
            }),
        }
    }

    pub(super) fn later_user(&mut self) -> Result<Option<u32>, HelloError> {
        match self.rest {
            [] => Ok(None),
            _ => Ok(Some(u32::from_le_bytes(self.array()?)).filter(|&user| user != NO_USER)),
        }
    }
}
