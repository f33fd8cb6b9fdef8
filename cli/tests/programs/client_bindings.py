"""cuda-bindings: the driver API, with a kernel of the software GPU that computes."""
import ctypes

import numpy as np
from cuda.bindings import driver as cu


def checked(result):
    if int(result[0]) != 0:
        raise SystemExit(f"{result[0]!r}")
    return result[1] if len(result) == 2 else result[1:]


N, LAUNCHES = 1000, 12
checked(cu.cuInit(0))
device = checked(cu.cuDeviceGet(0))
context = checked(cu.cuDevicePrimaryCtxRetain(device))
checked(cu.cuCtxSetCurrent(context))
module = checked(cu.cuModuleLoadData(b"softgpu-module 1\n\0"))
saxpy = checked(cu.cuModuleGetFunction(module, b"saxpy"))
stream = checked(cu.cuStreamCreate(0))
x, y = np.arange(N, dtype=np.float32), np.ones(N, dtype=np.float32)
there_x, there_y = checked(cu.cuMemAlloc(x.nbytes)), checked(cu.cuMemAlloc(y.nbytes))
checked(cu.cuMemcpyHtoD(there_x, x.ctypes.data, x.nbytes))
checked(cu.cuMemcpyHtoD(there_y, y.ctypes.data, y.nbytes))
parameters = ((1.0, there_x, there_y, N), (ctypes.c_float, None, None, ctypes.c_uint))
for _ in range(LAUNCHES):
    checked(cu.cuLaunchKernel(saxpy, 4, 1, 1, 256, 1, 1, 0, stream, parameters, 0))
checked(cu.cuStreamSynchronize(stream))
result = np.zeros_like(y)
checked(cu.cuMemcpyDtoH(result.ctypes.data, there_y, result.nbytes))
print("right:", bool((result == 1 + LAUNCHES * x).all()))
# Errors are the driver's own.
print(cu.cuModuleGetFunction(module, b"nothing")[0].name, cu.cuMemFree(cu.CUdeviceptr(64))[0].name)
checked(cu.cuMemFree(there_x))
checked(cu.cuMemFree(there_y))
checked(cu.cuModuleUnload(module))
checked(cu.cuDevicePrimaryCtxRelease(device))
print(f"launches={LAUNCHES} copied_h2d_bytes={2 * x.nbytes} copied_d2h_bytes={y.nbytes}")
