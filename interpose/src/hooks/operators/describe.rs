//! Descriptions of operators' calls, by the forms of `abi/operators.csv`. cuBLASLt and cuDNN take
//! matrices and tensors by descriptors, which only their own functions can read. We call those
//! functions with the application's arguments of the operator. Without them the label is the name.

#![expect(unsafe_code, reason = "reads what the application's pointers point to")]

use core::ffi::{c_int, c_void};

use abi::{Library, OPERATORS};

use super::helpers::{self, Helper};
use super::{Call, StreamOf};
use crate::kernels::labels::{Label, Number, SIZES_MAX};

/// Constants of `cublasLtMatrixLayoutAttribute_t` and `cublasLtMatmulDescAttributes_t`.
const LAYOUT_TYPE: c_int = 0;
const LAYOUT_ROWS: c_int = 2;
const LAYOUT_COLUMNS: c_int = 3;
const LAYOUT_BATCH_COUNT: c_int = 5;
const PRODUCT_TRANSA: c_int = 3;
const PRODUCT_TRANSB: c_int = 4;

/// Most dimensions of one tensor in a label.
const DIMENSIONS_MAX: usize = SIZES_MAX / 2;

/// The type of `cublasLtMatrixLayoutGetAttribute` and `cublasLtMatmulDescGetAttribute`.
type GetAttribute =
    unsafe extern "C-unwind" fn(*mut c_void, c_int, *mut c_void, usize, *mut usize) -> c_int;
/// The type of `cudnnGetTensorNdDescriptor`.
type GetTensor = unsafe extern "C-unwind" fn(
    *mut c_void,
    c_int,
    *mut c_int,
    *mut c_int,
    *mut c_int,
    *mut c_int,
) -> c_int;
/// The type of `cublasGetStream_v2` and `cudnnGetStream`.
type GetStream = unsafe extern "C-unwind" fn(*mut c_void, *mut *mut c_void) -> c_int;

/// Number format of the matrices as stated by a call: a `cudaDataType`, or its name.
pub(super) trait Stated {
    fn number(self) -> Number;
}

impl Stated for c_int {
    fn number(self) -> Number {
        Number::of_cuda(self)
    }
}

impl Stated for &str {
    fn number(self) -> Number {
        Number::of_word(self)
    }
}

fn named(index: usize) -> Label {
    Label::of_name(
        OPERATORS
            .get(index)
            .map_or(0, |operator| operator.name_index),
    )
}

fn letter(operation: c_int) -> u8 {
    match operation {
        0 => b'n',
        1 => b't',
        2 => b'c',
        _ => 0,
    }
}

/// How both factors are used; nothing if either value is unknown.
fn layout_of(a: c_int, b: c_int) -> [u8; 2] {
    let layout = [a, b].map(letter);
    if layout.contains(&0) { [0; 2] } else { layout }
}

/// Sizes are counts; the library reports negative ones.
fn size(size: c_int) -> u32 {
    u32::try_from(size).unwrap_or(0)
}

#[expect(clippy::too_many_arguments, reason = "the parameters of the calls")]
pub(super) fn product(
    index: usize,
    handle: *mut c_void,
    a: c_int,
    b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    batch: c_int,
    number: impl Stated,
) -> Call {
    let mut label = named(index);
    label.layout = layout_of(a, b);
    label.batch = size(batch);
    label.number = number.number();
    set(&mut label.sizes, [m, n, k].map(size));
    Call {
        label,
        stream: StreamOf::Handle(handle),
    }
}

pub(super) fn light_product(
    index: usize,
    _handle: *mut c_void,
    product: *mut c_void,
    a: *mut c_void,
    d: *mut c_void,
    stream: *mut c_void,
) -> Call {
    let mut label = named(index);
    describe_light(&mut label, product, a, d);
    Call {
        label,
        stream: StreamOf::Given(stream),
    }
}

fn describe_light(
    label: &mut Label,
    product: *mut c_void,
    a: *mut c_void,
    d: *mut c_void,
) -> Option<()> {
    let of_layout = |layout, attribute| attribute_of(Helper::LightLayout, layout, attribute);
    let of_product = |attribute| attribute_of::<c_int>(Helper::LightProduct, product, attribute);
    let layout = layout_of(of_product(PRODUCT_TRANSA)?, of_product(PRODUCT_TRANSB)?);
    let k = if layout[0] == b'n' {
        LAYOUT_COLUMNS
    } else {
        LAYOUT_ROWS
    };
    let of_size = |layout, attribute| {
        let size: u64 = of_layout(layout, attribute)?;
        u32::try_from(size).ok()
    };
    let sizes = [
        of_size(d, LAYOUT_ROWS)?,
        of_size(d, LAYOUT_COLUMNS)?,
        of_size(a, k)?,
    ];
    label.batch = size(attribute_of(Helper::LightLayout, d, LAYOUT_BATCH_COUNT)?);
    label.number = Number::of_cuda(attribute_of(Helper::LightLayout, a, LAYOUT_TYPE)?);
    label.layout = layout;
    set(&mut label.sizes, sizes);
    Some(())
}

fn attribute_of<T: Default>(helper: Helper, of: *mut c_void, attribute: c_int) -> Option<T> {
    let address = helpers::helper(helper).filter(|_| !of.is_null())?;
    // SAFETY: the library's function of that name, which has this type.
    let get = unsafe { core::mem::transmute::<*mut c_void, GetAttribute>(address.as_ptr()) };
    let (mut value, mut written) = (T::default(), 0);
    let to = (&raw mut value).cast();
    // SAFETY: a descriptor that the application gives this library; outputs outlive the call.
    let status = unsafe { get(of, attribute, to, size_of::<T>(), &raw mut written) };
    (status == 0 && written == size_of::<T>()).then_some(value)
}

pub(super) fn tensor_and_filter(
    index: usize,
    handle: *mut c_void,
    tensor: *mut c_void,
    filter: *mut c_void,
) -> Call {
    let mut call = self::tensor(index, handle, tensor);
    if let Some((_, dimensions)) = dimensions_of(Helper::Filter, filter) {
        let [_, of_filter] = halves(&mut call.label.sizes);
        set(of_filter, dimensions);
    }
    call
}

pub(super) fn tensor(index: usize, handle: *mut c_void, tensor: *mut c_void) -> Call {
    let mut call = name_alone(index, handle);
    if let Some((number, dimensions)) = dimensions_of(Helper::Tensor, tensor) {
        call.label.number = number;
        let [of_tensor, _] = halves(&mut call.label.sizes);
        set(of_tensor, dimensions);
    }
    call
}

/// An operator whose amount of work is not cheap to read.
pub(super) fn name_alone(index: usize, handle: *mut c_void) -> Call {
    Call {
        label: named(index),
        stream: StreamOf::Handle(handle),
    }
}

fn halves(sizes: &mut [u32; SIZES_MAX]) -> [&mut [u32]; 2] {
    let (first, second) = sizes.split_at_mut(DIMENSIONS_MAX);
    [first, second]
}

fn set<const N: usize>(to: &mut [u32], sizes: [u32; N]) {
    for (to, size) in to.iter_mut().zip(sizes) {
        *to = size;
    }
}

fn dimensions_of(
    helper: Helper,
    descriptor: *mut c_void,
) -> Option<(Number, [u32; DIMENSIONS_MAX])> {
    let address = helpers::helper(helper).filter(|_| !descriptor.is_null())?;
    // SAFETY: the library's function of that name. Its last four parameters are integer outputs in
    // both: count, dimensions and strides of a tensor; format, count and dimensions of a filter.
    let get = unsafe { core::mem::transmute::<*mut c_void, GetTensor>(address.as_ptr()) };
    let (mut number, mut one) = (0, 0);
    let (mut two, mut three) = ([0; DIMENSIONS_MAX], [0; DIMENSIONS_MAX]);
    let wanted = DIMENSIONS_MAX as c_int;
    // SAFETY: a descriptor that the application is about to pass to the same library, and outputs
    // that outlive the call with room for the requested number of dimensions.
    let status = unsafe {
        get(
            descriptor,
            wanted,
            &raw mut number,
            &raw mut one,
            two.as_mut_ptr(),
            three.as_mut_ptr(),
        )
    };
    let (count, dimensions) = match helper {
        Helper::Filter => (two.first().copied().unwrap_or(0), three),
        _ => (one, two),
    };
    let mut sizes = [0; DIMENSIONS_MAX];
    for (to, from) in sizes.iter_mut().zip(dimensions).take(size(count) as usize) {
        *to = size(from);
    }
    (status == 0).then_some((Number::of_cudnn(number), sizes))
}

pub(super) fn stream_of(library: Library, handle: *mut c_void) -> Option<*mut c_void> {
    let helper = match library {
        Library::Cublas => Helper::CublasStream,
        Library::Cudnn => Helper::CudnnStream,
        Library::CublasLt => return None,
    };
    let address = helpers::helper(helper).filter(|_| !handle.is_null())?;
    // SAFETY: the library's function of that name, which has this type.
    let get = unsafe { core::mem::transmute::<*mut c_void, GetStream>(address.as_ptr()) };
    let mut stream = core::ptr::null_mut();
    // SAFETY: a handle that the application gives this library; the output outlives the call.
    let status = unsafe { get(handle, &raw mut stream) };
    (status == 0).then_some(stream)
}
