//! Arrays and mipmapped arrays: device memory without an address that the application knows. Their
//! elements lie row after row without gaps. Sparse arrays, arrays that get their memory later and
//! formats that pack their channels are not supported.

use abi::types::{CUDA_ARRAY3D_DESCRIPTOR, CUarray3D_flags, CUresult};

use crate::driver::Driver;
use crate::holdings::{Array, Mipmap};
use crate::tables::BlockKind;

impl Driver {
    pub(crate) fn create_array(
        &self,
        descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    ) -> Result<u64, CUresult> {
        let (context, _) = self.current()?;
        let bytes = checked_bytes(&descriptor, 1)?;
        let start = self.allocate_hidden(bytes)?;
        let mut tables = self.tables.lock();
        let handle = tables.new_handle();
        let array = Array {
            context,
            descriptor,
            start,
            parent: None,
        };
        tables.holdings.arrays.insert(handle, array);
        Ok(handle)
    }

    /// Creates a mipmapped array with `levels` levels, clamped to the possible number.
    pub(crate) fn create_mipmap(
        &self,
        descriptor: CUDA_ARRAY3D_DESCRIPTOR,
        levels: u32,
    ) -> Result<u64, CUresult> {
        let (context, _) = self.current()?;
        let longest = [descriptor.width, descriptor.height, descriptor.depth]
            .into_iter()
            .max()
            .unwrap_or(0);
        let levels_max = usize::BITS - longest.leading_zeros();
        if levels == 0 || levels > levels_max {
            return Err(CUresult::INVALID_VALUE);
        }
        let start = self.allocate_hidden(checked_bytes(&descriptor, levels)?)?;
        let mut tables = self.tables.lock();
        let handle = tables.new_handle();
        let mipmap = Mipmap {
            context,
            descriptor,
            start,
            levels: vec![0; levels as usize],
        };
        tables.holdings.mipmaps.insert(handle, mipmap);
        Ok(handle)
    }

    fn allocate_hidden(&self, bytes: u64) -> Result<u64, CUresult> {
        if self.link.is_null() {
            return Err(CUresult::NOT_SUPPORTED);
        }
        let start = self.allocate(bytes)?;
        let mut tables = self.tables.lock();
        for block in tables.device.within_mut(start, 1) {
            block.kind = BlockKind::Array;
        }
        Ok(start)
    }

    /// One level of a mipmapped array; each call returns the same handle.
    pub(crate) fn mipmap_level(&self, handle: u64, level: u32) -> Result<u64, CUresult> {
        let mut tables = self.tables.lock();
        let known = tables.holdings.mipmaps.get(&handle);
        let mipmap = known.ok_or(CUresult::INVALID_HANDLE)?.clone();
        let place = mipmap.levels.get(level as usize);
        match *place.ok_or(CUresult::INVALID_VALUE)? {
            0 => {}
            known => return Ok(known),
        }
        let before = mipmap.descriptor.mipmap_bytes(level);
        let array = Array {
            context: mipmap.context,
            descriptor: mipmap.descriptor.level(level),
            start: mipmap.start + before.ok_or(CUresult::INVALID_VALUE)? as u64,
            parent: Some(handle),
        };
        let new = tables.new_handle();
        tables.holdings.arrays.insert(new, array);
        if let Some(mipmap) = tables.holdings.mipmaps.get_mut(&handle) {
            mipmap.levels[level as usize] = new;
        }
        Ok(new)
    }

    pub(crate) fn array(&self, handle: u64) -> Result<Array, CUresult> {
        let known = self.tables.lock().holdings.arrays.get(&handle).copied();
        known.ok_or(CUresult::INVALID_HANDLE)
    }

    /// Waits for the array's context and frees its memory.
    pub(crate) fn destroy_array(&self, handle: u64) -> Result<(), CUresult> {
        let array = self.array(handle)?;
        if array.parent.is_some() {
            return Err(CUresult::INVALID_HANDLE);
        }
        self.synchronise_context(array.context)?;
        let removed = self.tables.lock().holdings.arrays.remove(&handle);
        removed.ok_or(CUresult::INVALID_HANDLE)?;
        self.free_now(array.start)
    }

    /// As [`Self::destroy_array`], for a mipmapped array with the arrays that are its levels.
    pub(crate) fn destroy_mipmap(&self, handle: u64) -> Result<(), CUresult> {
        let context = {
            let tables = self.tables.lock();
            let known = tables.holdings.mipmaps.get(&handle);
            known.ok_or(CUresult::INVALID_HANDLE)?.context
        };
        self.synchronise_context(context)?;
        let mipmap = {
            let mut tables = self.tables.lock();
            let removed = tables.holdings.mipmaps.remove(&handle);
            let mipmap = removed.ok_or(CUresult::INVALID_HANDLE)?;
            for level in &mipmap.levels {
                tables.holdings.arrays.remove(level);
            }
            mipmap
        };
        self.free_now(mipmap.start)
    }
}

fn checked_bytes(descriptor: &CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> Result<u64, CUresult> {
    use CUarray3D_flags as F;
    let has = |flag: CUarray3D_flags| descriptor.flags & flag.0 != 0;
    if has(F::SPARSE) || has(F::DEFERRED_MAPPING) {
        return Err(CUresult::NOT_SUPPORTED);
    }
    let CUDA_ARRAY3D_DESCRIPTOR {
        width,
        height,
        depth,
        ..
    } = *descriptor;
    let is_layered = has(F::LAYERED) || has(F::CUBEMAP);
    let is_bad_shape = width == 0
        || (depth != 0 && height == 0 && !is_layered)
        || (has(F::LAYERED) && depth == 0)
        || (has(F::CUBEMAP) && (width != height || depth == 0 || !depth.is_multiple_of(6)))
        || (has(F::CUBEMAP) && !has(F::LAYERED) && depth != 6);
    if is_bad_shape || !matches!(descriptor.num_channels, 1 | 2 | 4) {
        return Err(CUresult::INVALID_VALUE);
    }
    if descriptor.element_bytes().is_none() {
        return Err(CUresult::NOT_SUPPORTED);
    }
    // A size that overflows exceeds every device.
    let bytes = descriptor.mipmap_bytes(levels);
    Ok(bytes.ok_or(CUresult::OUT_OF_MEMORY)? as u64)
}
