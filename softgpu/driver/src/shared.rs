//! The pages shared with the device server, as own types, so that `protocol` can map them.

#![expect(unsafe_code, reason = "declares which types are shared pages")]

use std::ops::Deref;

use protocol::segment::SharedPage;
use softgpu::wire::{DevicePage, HostArena};

#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Shared<T>(T);

// SAFETY: the page is a repr(C) structure of atomics and arrays of atomics, for which any bytes,
// zeroes included, are a value, and which another process may write at any time.
unsafe impl SharedPage for Shared<DevicePage> {}
// SAFETY: the arena is a repr(C) array of atomics, as above.
unsafe impl SharedPage for Shared<HostArena> {}

impl<T> Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}
