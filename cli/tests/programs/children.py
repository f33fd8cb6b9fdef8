"""Uses CUDA through ctypes in children started in each of Python's ways, and starts plain children,
too."""
import ctypes
import multiprocessing
import subprocess
import sys


def use_cuda(amount):
    cuda = ctypes.CDLL("libcuda.so.1")
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    results = [cuda.cuInit(0), cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)]
    results.append(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(amount)))
    results.append(cuda.cuMemsetD8_v2(pointer, 7, ctypes.c_size_t(amount)))
    back = (ctypes.c_ubyte * amount)()
    results.append(cuda.cuMemcpyDtoH_v2(back, pointer, ctypes.c_size_t(amount)))
    results.append(cuda.cuMemFree_v2(pointer))
    return results, set(back) == {7}


if __name__ == "__main__":
    print(subprocess.run(["echo", "plain"], capture_output=True, text=True).stdout, end="")
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, pool.map(use_cuda, [4096, 8192]))
    print("here", use_cuda(1024))
    sys.exit(9)
