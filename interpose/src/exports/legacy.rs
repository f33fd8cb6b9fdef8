//! Launches as before CUDA 4. Setting a shape launches nothing, but nobody else can tell later what it was.

use core::ffi::{c_int, c_uint};

use abi::types::{CUfunction, CUresult, CUstream};

use super::hook;
use crate::launch::{Request, begin, end};
use crate::legacy::SHAPES;
use crate::streams::{Flavour, Stream};

hook! {
    cuFuncSetBlockShape(function: CUfunction, x: c_int, y: c_int, z: c_int);
    after |_, result| {
        if result == CUresult::SUCCESS {
            SHAPES.handle_block(function, [x, y, z]);
        }
    };
}

hook! {
    cuFuncSetSharedSize(function: CUfunction, bytes: c_uint);
    after |_, result| {
        if result == CUresult::SUCCESS {
            SHAPES.handle_shared(function, bytes);
        }
    };
}

hook! {
    cuLaunch(function: CUfunction);
    before |client| begin(client, &request(function, [1, 1], CUstream::NULL));
    after |_, begun, result| end(begun, result);
}

hook! {
    cuLaunchGrid(function: CUfunction, width: c_int, height: c_int);
    before |client| begin(client, &request(function, [width, height], CUstream::NULL));
    after |_, begun, result| end(begun, result);
}

hook! {
    cuLaunchGridAsync(function: CUfunction, width: c_int, height: c_int, stream: CUstream);
    before |client| begin(client, &request(function, [width, height], stream));
    after |_, begun, result| end(begun, result);
}

/// These entry points have no per-thread form: stream 0 is the legacy default stream.
fn request(function: CUfunction, grid: [c_int; 2], stream: CUstream) -> Request {
    Request {
        function,
        shape: SHAPES.of(function, grid),
        stream: Stream::of(stream, Flavour::Plain),
    }
}
