//! Parameters that nodes keep for queries, and the work that runs.

use abi::types::{
    CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
    CUcontext, CUdeviceptr, CUfunction, CUkernel, CUmemorytype, CUresult,
};
use softgpu::KernelShape;
use softgpu::wire::PARAMS;

use crate::driver::Driver;
use crate::launches::{Arguments, Launch, Options};
use crate::memory::Place;
use crate::raw::{Extra, In, Params};

/// Most contiguous pieces of a copy or fill; more are not supported.
const PIECES_MAX: usize = 1 << 14;

#[derive(Debug)]
pub(crate) struct KernelNode {
    pub(crate) context: u64,
    pub(crate) function: u64,
    /// Whether it was passed as a library's kernel.
    pub(crate) is_kernel: bool,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) dynamic_shared_bytes: u32,
    pub(crate) options: Options,
    pub(crate) shape: KernelShape,
    pub(crate) builtin: u32,
    /// The arguments, at an address that is stable while the node has them.
    pub(crate) values: Box<[u64; PARAMS]>,
    /// Address of each, for queries of the node's parameters.
    addresses: Box<[u64; PARAMS]>,
}

impl Clone for KernelNode {
    fn clone(&self) -> Self {
        let values = self.values.clone();
        Self {
            addresses: addresses_of(&values),
            values,
            ..*self
        }
    }
}

fn addresses_of(values: &[u64; PARAMS]) -> Box<[u64; PARAMS]> {
    Box::new(std::array::from_fn(|index| {
        (&raw const values[index]).expose_provenance() as u64
    }))
}

impl KernelNode {
    /// In the form of the entry points.
    pub(crate) fn params(&self) -> CUDA_KERNEL_NODE_PARAMS {
        let handle = std::ptr::without_provenance_mut(self.function as usize);
        let (func, kern) = if self.is_kernel {
            (CUfunction::NULL, CUkernel(handle))
        } else {
            (CUfunction(handle), CUkernel::NULL)
        };
        let addresses = (&raw const *self.addresses).expose_provenance();
        CUDA_KERNEL_NODE_PARAMS {
            v1: CUDA_KERNEL_NODE_PARAMS_v1 {
                func,
                grid_dim: self.grid,
                block_dim: self.block,
                shared_mem_bytes: self.dynamic_shared_bytes,
                kernel_params: std::ptr::with_exposed_provenance_mut(addresses),
                extra: std::ptr::null_mut(),
            },
            kern,
            ctx: CUcontext(std::ptr::without_provenance_mut(self.context as usize)),
        }
    }
}

impl Driver {
    pub(crate) fn kernel_node(
        &self,
        params: &CUDA_KERNEL_NODE_PARAMS,
    ) -> Result<KernelNode, CUresult> {
        let CUDA_KERNEL_NODE_PARAMS { v1, kern, ctx } = *params;
        let is_kernel = v1.func.is_null();
        let function = if is_kernel {
            kern.0.addr() as u64
        } else {
            v1.func.0.addr() as u64
        };
        let context = match ctx.0.addr() as u64 {
            0 if is_kernel => self.current()?.0,
            0 => self.function(function)?.context,
            given => given,
        };
        let packed;
        let extra = Extra::at(v1.extra);
        let arguments = if extra.is_null() {
            Arguments::Each(Params::at(v1.kernel_params))
        } else {
            packed = extra.packed()?;
            Arguments::Packed(&packed)
        };
        let launch = Launch {
            function,
            grid: v1.grid_dim,
            block: v1.block_dim,
            dynamic_shared_bytes: v1.shared_mem_bytes,
            arguments,
            options: Options::default(),
        };
        let mut node = self.node_of_launch(context, &launch)?;
        node.is_kernel = is_kernel;
        Ok(node)
    }

    pub(crate) fn node_of_launch(
        &self,
        context: u64,
        launch: &Launch<'_>,
    ) -> Result<KernelNode, CUresult> {
        let (shape, builtin, values) = self.work(context, launch)?;
        let values = Box::new(values);
        Ok(KernelNode {
            context,
            function: launch.function,
            is_kernel: false,
            grid: launch.grid,
            block: launch.block,
            dynamic_shared_bytes: launch.dynamic_shared_bytes,
            options: launch.options,
            shape,
            builtin,
            addresses: addresses_of(&values),
            values,
        })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct CopyNode {
    pub(crate) context: u64,
    /// [`CUDA_MEMCPY3D`], for queries.
    pub(crate) words: [u64; 25],
    /// Destination, source and size of each piece.
    pub(crate) pieces: Vec<[u64; 3]>,
    /// Whether it is one-dimensional, as updates of an executable require.
    pub(crate) is_flat: bool,
    /// Places of destination and source, which updates cannot change.
    pub(crate) places: [Place; 2],
}

impl Driver {
    pub(crate) fn copy_node(
        &self,
        params: &In<CUDA_MEMCPY3D>,
        context: u64,
    ) -> Result<CopyNode, CUresult> {
        let copy = params.get()?;
        let words = params.words::<25>()?;
        self.context(context)?;
        let CUDA_MEMCPY3D {
            width_in_bytes,
            height,
            depth,
            ..
        } = copy;
        let [width, rows, slices] = [width_in_bytes, height, depth].map(|size| size as u64);
        if width == 0 || rows == 0 || slices == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let (to, from) = (Side::to(&copy, width)?, Side::from(&copy, width)?);
        let is_flat = rows == 1 && slices == 1;
        let pieces = pieces(&to, &from, [width, rows, slices])?;
        let mut places = [Place::Pageable; 2];
        for &[piece_to, piece_from, bytes] in &pieces {
            places = [self.place(piece_to, bytes)?, self.place(piece_from, bytes)?];
        }
        Ok(CopyNode {
            context,
            words,
            pieces,
            is_flat,
            places,
        })
    }

    /// A copy node of a captured contiguous copy.
    pub(crate) fn flat_copy_node(
        &self,
        context: u64,
        [to, from, bytes]: [u64; 3],
    ) -> Result<CopyNode, CUresult> {
        let places = [self.place(to, bytes)?, self.place(from, bytes)?];
        let mut words = [0; 25];
        // Words 0 to 10 are the source, 11 to 21 the destination; see CUDA_MEMCPY3D.
        for (at, address, place) in [(0, from, places[1]), (11, to, places[0])] {
            let is_device = place == Place::Device;
            let kind = if is_device {
                CUmemorytype::DEVICE
            } else {
                CUmemorytype::HOST
            };
            words[at + 4] = kind.0.into();
            words[if is_device { at + 6 } else { at + 5 }] = address;
            words[at + 9] = bytes;
            words[at + 10] = 1;
        }
        words[22..].copy_from_slice(&[bytes, 1, 1]);
        Ok(CopyNode {
            context,
            words,
            pieces: vec![[to, from, bytes]],
            is_flat: true,
            places,
        })
    }
}

struct Side {
    first: u64,
    row_bytes: u64,
    slice_bytes: u64,
}

impl Side {
    fn from(copy: &CUDA_MEMCPY3D, width: u64) -> Result<Self, CUresult> {
        let host = copy.src_host.expose_provenance() as u64;
        let base = base(copy.src_memory_type, host, copy.src_device)?;
        Self::new(
            base,
            width,
            [copy.src_x_in_bytes, copy.src_y, copy.src_z, copy.src_lod],
            [copy.src_pitch, copy.src_height],
        )
    }

    fn to(copy: &CUDA_MEMCPY3D, width: u64) -> Result<Self, CUresult> {
        let host = copy.dst_host.expose_provenance() as u64;
        let base = base(copy.dst_memory_type, host, copy.dst_device)?;
        Self::new(
            base,
            width,
            [copy.dst_x_in_bytes, copy.dst_y, copy.dst_z, copy.dst_lod],
            [copy.dst_pitch, copy.dst_height],
        )
    }

    /// `first` has byte, row, slice and level of its beginning; `sizes` bytes per row, rows per
    /// slice.
    fn new(base: u64, width: u64, first: [usize; 4], sizes: [usize; 2]) -> Result<Self, CUresult> {
        let [x, y, z, lod] = first.map(|number| number as u64);
        let [pitch, height] = sizes.map(|number| number as u64);
        if base == 0 || lod != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let row_bytes = match pitch {
            0 => width,
            pitch if pitch >= width => pitch,
            _ => return Err(CUresult::INVALID_VALUE),
        };
        let slice_bytes = row_bytes.wrapping_mul(height.max(1));
        let offset = x
            .wrapping_add(y.wrapping_mul(row_bytes))
            .wrapping_add(z.wrapping_mul(slice_bytes));
        Ok(Self {
            first: base.wrapping_add(offset),
            row_bytes,
            slice_bytes,
        })
    }

    fn at(&self, slice: u64, row: u64) -> u64 {
        self.first
            .wrapping_add(slice.wrapping_mul(self.slice_bytes))
            .wrapping_add(row.wrapping_mul(self.row_bytes))
    }
}

fn base(kind: CUmemorytype, host: u64, device: CUdeviceptr) -> Result<u64, CUresult> {
    match kind {
        CUmemorytype::HOST => Ok(host),
        CUmemorytype::DEVICE | CUmemorytype::UNIFIED => Ok(device.0),
        // Graph copies do not support arrays.
        CUmemorytype::ARRAY => Err(CUresult::NOT_SUPPORTED),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// The rows of a copy; rows that are contiguous on both sides count as one.
fn pieces(
    to: &Side,
    from: &Side,
    [width, rows, slices]: [u64; 3],
) -> Result<Vec<[u64; 3]>, CUresult> {
    let mut pieces: Vec<[u64; 3]> = Vec::new();
    for slice in 0..slices {
        for row in 0..rows {
            let next = [to.at(slice, row), from.at(slice, row)];
            if let Some([last_to, last_from, bytes]) = pieces.last_mut()
                && [*last_to + *bytes, *last_from + *bytes] == next
            {
                *bytes += width;
                continue;
            }
            if pieces.len() >= PIECES_MAX {
                return Err(CUresult::NOT_SUPPORTED);
            }
            pieces.push([next[0], next[1], width]);
        }
    }
    Ok(pieces)
}

#[derive(Clone, Debug)]
pub(crate) struct SetNode {
    pub(crate) context: u64,
    pub(crate) dst: u64,
    pub(crate) pitch: u64,
    pub(crate) value: u32,
    pub(crate) width_bytes: u32,
    /// Values of a row.
    pub(crate) width: u64,
    pub(crate) height: u64,
}

impl SetNode {
    pub(crate) fn params(&self) -> CUDA_MEMSET_NODE_PARAMS {
        CUDA_MEMSET_NODE_PARAMS {
            dst: CUdeviceptr(self.dst),
            pitch: self.pitch as usize,
            value: self.value,
            element_size: self.width_bytes,
            width: self.width as usize,
            height: self.height as usize,
        }
    }

    /// Address and count of each row.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (u64, u64)> {
        let (dst, pitch, width) = (self.dst, self.pitch, self.width);
        (0..self.height).map(move |row| (dst.wrapping_add(row.wrapping_mul(pitch)), width))
    }
}

impl Driver {
    pub(crate) fn set_node(
        &self,
        params: &CUDA_MEMSET_NODE_PARAMS,
        context: u64,
    ) -> Result<SetNode, CUresult> {
        self.context(context)?;
        let node = SetNode {
            context,
            dst: params.dst.0,
            pitch: params.pitch as u64,
            value: params.value,
            width_bytes: params.element_size,
            width: params.width as u64,
            height: params.height as u64,
        };
        if node.height as usize > PIECES_MAX {
            return Err(CUresult::NOT_SUPPORTED);
        }
        let is_width = matches!(node.width_bytes, 1 | 2 | 4);
        if !is_width || node.width == 0 || node.height == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let bytes = node
            .width
            .checked_mul(node.width_bytes.into())
            .ok_or(CUresult::INVALID_VALUE)?;
        if node.height > 1 && node.pitch < bytes {
            return Err(CUresult::INVALID_VALUE);
        }
        for (address, _) in node.rows() {
            let is_aligned = address.is_multiple_of(node.width_bytes.into());
            if !is_aligned || self.place(address, bytes)? == Place::Pageable {
                return Err(CUresult::INVALID_VALUE);
            }
        }
        Ok(node)
    }
}
