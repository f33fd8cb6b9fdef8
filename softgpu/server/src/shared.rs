//! The pages shared with a driver, as types of this crate, so that `protocol` can map them.

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

#[cfg(test)]
mod tests {
    use protocol::segment::Mapping;
    use softgpu::wire::HOST_ARENA_BYTES;

    use super::*;

    #[test]
    fn an_arena_keeps_what_is_written_at_any_offset_and_length() {
        let (_fd, arena) = Mapping::<Shared<HostArena>>::create("softgpu-test").unwrap();
        for offset in 0..9 {
            for length in 0..26usize {
                assert!(arena.write(0, &[0xee; 64]));
                let bytes: Vec<u8> = (1..=length as u8).collect();
                assert!(arena.write(offset, &bytes));
                let mut all = [0; 64];
                assert!(arena.read(0, &mut all));
                let start = offset as usize;
                assert_eq!(&all[start..start + length], bytes, "{offset} {length}");
                assert!(
                    all[..start]
                        .iter()
                        .chain(&all[start + length..])
                        .all(|&b| b == 0xee)
                );
                let mut back = vec![0; length];
                assert!(arena.read(offset, &mut back));
                assert_eq!(back, bytes);
            }
        }
    }

    #[test]
    fn an_arena_ends_where_it_ends() {
        let (_fd, arena) = Mapping::<Shared<HostArena>>::create("softgpu-test").unwrap();
        assert!(arena.write(HOST_ARENA_BYTES - 1, &[7]));
        assert!(!arena.write(HOST_ARENA_BYTES - 1, &[7, 8]));
        assert!(!arena.read(u64::MAX, &mut [0; 2]));
    }
}
