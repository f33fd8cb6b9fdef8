"""y = a x + y on the GPU, through NVIDIA's cuda-bindings (pip install cuda-bindings numpy).

The module is a text for the software GPU, which has the kernel `saxpy` in every such module. On an
NVIDIA GPU load PTX or a cubin instead.
"""

import sys

import numpy as np
from cuda.bindings import driver


def call(function, *arguments):
    """Calls the driver and returns its values without the result code."""
    result, *values = function(*arguments)
    if result != driver.CUresult.CUDA_SUCCESS:
        sys.exit(f"{function.__name__}: {result.name}")
    return values[0] if len(values) == 1 else values


N = 1 << 16
a = np.float32(2)
x = np.arange(N, dtype=np.float32)
y = np.ones(N, dtype=np.float32)

call(driver.cuInit, 0)
device = call(driver.cuDeviceGet, 0)
context = call(driver.cuDevicePrimaryCtxRetain, device)
call(driver.cuCtxSetCurrent, context)
module = call(driver.cuModuleLoadData, b"softgpu-module 1\n\0")
saxpy = call(driver.cuModuleGetFunction, module, b"saxpy")
on_x = call(driver.cuMemAlloc, x.nbytes)
on_y = call(driver.cuMemAlloc, y.nbytes)
call(driver.cuMemcpyHtoD, on_x, x.ctypes.data, x.nbytes)
call(driver.cuMemcpyHtoD, on_y, y.ctypes.data, y.nbytes)

# Each parameter as an array with one element, and the addresses of these arrays.
parameters = [np.array([value], dtype=kind) for value, kind in (
    (a, np.float32), (int(on_x), np.uint64), (int(on_y), np.uint64), (N, np.uint32))]
addresses = np.array([parameter.ctypes.data for parameter in parameters], dtype=np.uint64)
call(driver.cuLaunchKernel, saxpy, N // 256, 1, 1, 256, 1, 1, 0, 0, addresses.ctypes.data, 0)

result = np.empty_like(y)
call(driver.cuMemcpyDtoH, result.ctypes.data, on_y, result.nbytes)
if not np.array_equal(result, a * x + y):
    sys.exit("wrong results")
print(f"{N} results are right")
