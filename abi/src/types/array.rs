//! Array descriptors, for `cuArrayCreate` and others. `_v1`: of CUDA 2 and 3.0, with 32-bit sizes.

use core::ffi::{c_uint, c_void};

use super::named_values;

named_values! {
    /// Element types of an array.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUarray_format(u32), "CU_AD_FORMAT_" {
        /// One byte, unsigned.
        UNSIGNED_INT8 = 1,
        /// Two bytes, unsigned.
        UNSIGNED_INT16 = 2,
        /// Four bytes, unsigned.
        UNSIGNED_INT32 = 3,
        /// One byte, signed.
        SIGNED_INT8 = 8,
        /// Two bytes, signed.
        SIGNED_INT16 = 9,
        /// Four bytes, signed.
        SIGNED_INT32 = 10,
        /// Two bytes, floating point.
        HALF = 16,
        /// Four bytes, floating point.
        FLOAT = 32,
    }
}

impl CUarray_format {
    /// Bytes of one channel; `None` for a format that packs its channels, or an unknown one.
    #[must_use]
    pub const fn channel_bytes(self) -> Option<usize> {
        match self {
            Self::UNSIGNED_INT8 | Self::SIGNED_INT8 => Some(1),
            Self::UNSIGNED_INT16 | Self::SIGNED_INT16 | Self::HALF => Some(2),
            Self::UNSIGNED_INT32 | Self::SIGNED_INT32 | Self::FLOAT => Some(4),
            _ => None,
        }
    }
}

named_values! {
    /// Flags of a three-dimensional array. Macros in the header, not an enum.
    #[expect(non_camel_case_types, reason = "named like the other flags")]
    CUarray3D_flags(u32), "CUDA_ARRAY3D_" {
        /// The depth counts layers.
        LAYERED = 1,
        /// Kernels may write to it.
        SURFACE_LDST = 2,
        /// The six faces of a cube.
        CUBEMAP = 4,
        /// Four texels can be fetched at once.
        TEXTURE_GATHER = 8,
        /// Depth values, for comparison.
        DEPTH_TEXTURE = 16,
        /// Graphics can render to it.
        COLOR_ATTACHMENT = 32,
        /// Has no memory until it is mapped.
        SPARSE = 64,
        /// Has no memory until it is mapped later.
        DEFERRED_MAPPING = 128,
    }
}

/// An array of one or two dimensions.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUDA_ARRAY_DESCRIPTOR {
    /// Elements of a row.
    pub width: usize,
    /// Rows; 0 for one dimension.
    pub height: usize,
    /// Format of a channel.
    pub format: CUarray_format,
    /// Channels of an element.
    pub num_channels: c_uint,
}

/// An array of up to three dimensions.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUDA_ARRAY3D_DESCRIPTOR {
    /// Elements of a row.
    pub width: usize,
    /// Rows; 0 for one dimension.
    pub height: usize,
    /// Slices or layers; 0 for two dimensions.
    pub depth: usize,
    /// Format of a channel.
    pub format: CUarray_format,
    /// Channels of an element.
    pub num_channels: c_uint,
    /// [`CUarray3D_flags`].
    pub flags: c_uint,
}

/// [`CUDA_ARRAY_DESCRIPTOR`] of CUDA 2.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUDA_ARRAY_DESCRIPTOR_v1 {
    /// Elements of a row.
    pub width: c_uint,
    /// Rows; 0 for one dimension.
    pub height: c_uint,
    /// Format of a channel.
    pub format: CUarray_format,
    /// Channels of an element.
    pub num_channels: c_uint,
}

/// [`CUDA_ARRAY3D_DESCRIPTOR`] of CUDA 2.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUDA_ARRAY3D_DESCRIPTOR_v1 {
    /// Elements of a row.
    pub width: c_uint,
    /// Rows; 0 for one dimension.
    pub height: c_uint,
    /// Slices or layers; 0 for two dimensions.
    pub depth: c_uint,
    /// Format of a channel.
    pub format: CUarray_format,
    /// Channels of an element.
    pub num_channels: c_uint,
    /// [`CUarray3D_flags`].
    pub flags: c_uint,
}

/// Memory requirements of an array without memory.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUDA_ARRAY_MEMORY_REQUIREMENTS {
    /// Bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub alignment: usize,
    /// Zero.
    pub reserved: [c_uint; 4],
}

impl CUDA_ARRAY3D_DESCRIPTOR {
    /// Bytes of an element; `None` if the format is unknown.
    #[must_use]
    pub const fn element_bytes(&self) -> Option<usize> {
        match self.format.channel_bytes() {
            Some(channel) => channel.checked_mul(self.num_channels as usize),
            None => None,
        }
    }

    /// Bytes of all elements, the requested size. `None` for an unknown format or an overflow.
    #[must_use]
    pub fn bytes(&self) -> Option<usize> {
        let [height, depth] = [self.height, self.depth].map(|extent| extent.max(1));
        self.element_bytes()?
            .checked_mul(self.width)?
            .checked_mul(height)?
            .checked_mul(depth)
    }

    /// A level of a mipmapped array from this first one: extents halve, except a depth of layers.
    #[must_use]
    pub const fn level(&self, level: u32) -> Self {
        let is_layered =
            self.flags & (CUarray3D_flags::LAYERED.0 | CUarray3D_flags::CUBEMAP.0) != 0;
        let mut halved = *self;
        halved.width = halve(self.width, level);
        halved.height = halve(self.height, level);
        if !is_layered {
            halved.depth = halve(self.depth, level);
        }
        halved
    }

    /// Bytes of all elements of a mipmapped array with `levels` levels; see [`Self::bytes`].
    #[must_use]
    pub fn mipmap_bytes(&self, levels: u32) -> Option<usize> {
        // Beyond as many levels as the extents have bits, nothing is left to halve.
        (0..levels.min(usize::BITS)).try_fold(0_usize, |sum, level| {
            sum.checked_add(self.level(level).bytes()?)
        })
    }
}

/// Halves an extent. 0 means no such dimension; a dimension that exists never becomes 0.
const fn halve(extent: usize, times: u32) -> usize {
    match (extent, extent.checked_shr(times)) {
        (0, _) => 0,
        (_, None | Some(0)) => 1,
        (_, Some(halved)) => halved,
    }
}

impl From<CUDA_ARRAY_DESCRIPTOR> for CUDA_ARRAY3D_DESCRIPTOR {
    fn from(two: CUDA_ARRAY_DESCRIPTOR) -> Self {
        Self {
            width: two.width,
            height: two.height,
            depth: 0,
            format: two.format,
            num_channels: two.num_channels,
            flags: 0,
        }
    }
}

impl From<CUDA_ARRAY_DESCRIPTOR_v1> for CUDA_ARRAY3D_DESCRIPTOR {
    fn from(two: CUDA_ARRAY_DESCRIPTOR_v1) -> Self {
        Self {
            width: two.width as usize,
            height: two.height as usize,
            depth: 0,
            format: two.format,
            num_channels: two.num_channels,
            flags: 0,
        }
    }
}

impl From<CUDA_ARRAY3D_DESCRIPTOR_v1> for CUDA_ARRAY3D_DESCRIPTOR {
    fn from(three: CUDA_ARRAY3D_DESCRIPTOR_v1) -> Self {
        Self {
            width: three.width as usize,
            height: three.height as usize,
            depth: three.depth as usize,
            format: three.format,
            num_channels: three.num_channels,
            flags: three.flags,
        }
    }
}

/// Passed to `cuMemMapArrayAsync`; opaque here.
pub type CUarrayMapInfo = c_void;

const _: () = assert!(size_of::<CUDA_ARRAY_DESCRIPTOR>() == 24);
const _: () = assert!(size_of::<CUDA_ARRAY3D_DESCRIPTOR>() == 40);
const _: () = assert!(size_of::<CUDA_ARRAY_DESCRIPTOR_v1>() == 16);
const _: () = assert!(size_of::<CUDA_ARRAY3D_DESCRIPTOR_v1>() == 24);
const _: () = assert!(size_of::<CUDA_ARRAY_MEMORY_REQUIREMENTS>() == 32);

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: CUDA_ARRAY3D_DESCRIPTOR = CUDA_ARRAY3D_DESCRIPTOR {
        width: 10,
        height: 6,
        depth: 0,
        format: CUarray_format::HALF,
        num_channels: 4,
        flags: 0,
    };

    #[test]
    fn dimensions_that_are_not_there_count_once() {
        assert_eq!(IMAGE.bytes(), Some(10 * 6 * 8));
        let line = CUDA_ARRAY3D_DESCRIPTOR { height: 0, ..IMAGE };
        assert_eq!(line.bytes(), Some(10 * 8));
        let volume = CUDA_ARRAY3D_DESCRIPTOR { depth: 3, ..IMAGE };
        assert_eq!(volume.bytes(), Some(3 * 10 * 6 * 8));
    }

    #[test]
    fn unknown_formats_and_products_beyond_all_memory_have_no_size() {
        let packed = CUDA_ARRAY3D_DESCRIPTOR {
            format: CUarray_format(176),
            ..IMAGE
        };
        assert_eq!(packed.bytes(), None);
        let vast = CUDA_ARRAY3D_DESCRIPTOR {
            width: usize::MAX,
            ..IMAGE
        };
        assert_eq!(vast.bytes(), None);
    }

    #[test]
    fn levels_halve_down_to_one_and_layers_stay() {
        assert_eq!(IMAGE.level(2).width, 2);
        assert_eq!(IMAGE.level(2).height, 1);
        assert_eq!(IMAGE.level(40).bytes(), Some(8));
        assert_eq!(IMAGE.level(2).depth, 0);
        assert_eq!(IMAGE.mipmap_bytes(3), Some((60 + 15 + 2) * 8));
        let layered = CUDA_ARRAY3D_DESCRIPTOR {
            depth: 5,
            flags: CUarray3D_flags::LAYERED.0,
            ..IMAGE
        };
        assert_eq!(layered.level(2).depth, 5);
    }
}
