//! The shapes of functions that are launched as before CUDA 4: set on the function, then used by each launch. The driver
//! cannot be asked for them, so they are kept as they are set.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use abi::types::CUfunction;

use crate::kernels::Shape;
use crate::table::Keys;

/// Most functions with a shape. Programs of that time had some tens. They are kept for good: a
/// function that finds no room is launched as with the largest block.
const FUNCTIONS_MAX: usize = 1 << 12;

/// Threads of a block for whose shape there was no room: as many as there can be.
const BLOCK_UNKNOWN: [u32; 3] = [1024, 1, 1];

/// Bits of each size of a block; more than 1024 in x and y or 64 in z fails in the driver.
const SIZE_BITS: u32 = 16;
const SIZE_MASK: u64 = (1 << SIZE_BITS) - 1;

/// The shapes of this process.
pub(crate) static SHAPES: Shapes = Shapes::new();

/// See [`SHAPES`].
pub(crate) struct Shapes {
    functions: Keys<FUNCTIONS_MAX>,
    /// x, y, z in 16 bits each; 0 is not set.
    blocks: [AtomicU64; FUNCTIONS_MAX],
    shared_bytes: [AtomicU64; FUNCTIONS_MAX],
    /// Whether there was no room for some shape.
    is_full: AtomicBool,
}

impl Shapes {
    const fn new() -> Self {
        Self {
            functions: Keys::new(),
            blocks: [const { AtomicU64::new(0) }; FUNCTIONS_MAX],
            shared_bytes: [const { AtomicU64::new(0) }; FUNCTIONS_MAX],
            is_full: AtomicBool::new(false),
        }
    }

    /// The driver took a block shape.
    pub(crate) fn handle_block(&self, function: CUfunction, block: [i32; 3]) {
        let word = block.iter().enumerate().fold(0, |word, (position, &size)| {
            word | (size.max(1) as u64 & SIZE_MASK) << (position as u32 * SIZE_BITS)
        });
        self.store(&self.blocks, function, word);
    }

    /// The driver took a size of dynamic shared memory.
    pub(crate) fn handle_shared(&self, function: CUfunction, bytes: u32) {
        self.store(&self.shared_bytes, function, bytes.into());
    }

    /// The shape of a launch of this grid.
    pub(crate) fn of(&self, function: CUfunction, grid: [i32; 2]) -> Shape {
        let place = self.functions.find(function.0 as u64);
        let word = |words: &[AtomicU64; FUNCTIONS_MAX]| {
            place
                .and_then(|place| words.get(place))
                .map_or(0, |word| word.load(Ordering::Relaxed))
        };
        let block = match word(&self.blocks) {
            0 if self.is_full.load(Ordering::Relaxed) => BLOCK_UNKNOWN,
            // Nobody has set one, and the driver will refuse the launch.
            0 => [0; 3],
            sizes => [0, 1, 2].map(|position| (sizes >> (position * SIZE_BITS) & SIZE_MASK) as u32),
        };
        let [x, y] = grid.map(|size| u32::try_from(size).unwrap_or(0));
        Shape {
            grid: [x, y, 1],
            block,
            shared_bytes: u32::try_from(word(&self.shared_bytes)).unwrap_or(u32::MAX),
        }
    }

    fn store(&self, words: &[AtomicU64; FUNCTIONS_MAX], function: CUfunction, word: u64) {
        if function.0.is_null() {
            return;
        }
        let place = self.functions.insert(function.0 as u64);
        match place.and_then(|place| words.get(place)) {
            Some(kept) => kept.store(word, Ordering::Relaxed),
            None => self.is_full.store(true, Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use core::ptr;

    use super::*;

    #[test]
    fn a_launch_has_the_shape_that_was_set_last() {
        static SHAPES: Shapes = Shapes::new();
        let function = |n: usize| CUfunction(ptr::without_provenance_mut(n));
        let shape = |block, shared_bytes| Shape {
            grid: [3, 2, 1],
            block,
            shared_bytes,
        };
        assert_eq!(SHAPES.of(function(64), [3, 2]), shape([0; 3], 0));
        SHAPES.handle_block(function(64), [1024, 1, 1]);
        SHAPES.handle_block(function(128), [8, 1024, 64]);
        SHAPES.handle_shared(function(128), 49152);
        assert_eq!(SHAPES.of(function(64), [3, 2]), shape([1024, 1, 1], 0));
        assert_eq!(
            SHAPES.of(function(128), [3, 2]),
            shape([8, 1024, 64], 49152)
        );
        SHAPES.handle_block(function(128), [32, 1, 1]);
        assert_eq!(SHAPES.of(function(128), [3, 2]), shape([32, 1, 1], 49152));
        assert_eq!(SHAPES.of(function(128), [-1, 2]).grid, [0, 2, 1]);
    }
    #[test]
    fn a_shape_for_which_there_is_no_room_is_the_largest() {
        static SHAPES: Shapes = Shapes::new();
        let function = |n: usize| CUfunction(ptr::without_provenance_mut(n * 64));
        let count = 2 * FUNCTIONS_MAX;
        for n in 1..=count {
            SHAPES.handle_block(function(n), [32, 1, 1]);
        }
        let blocks: Vec<_> = (1..=count)
            .map(|n| SHAPES.of(function(n), [1, 1]).block)
            .collect();
        assert!(blocks.contains(&[32, 1, 1]) && blocks.contains(&BLOCK_UNKNOWN));
        assert!(!blocks.contains(&[0; 3]));
    }
}
