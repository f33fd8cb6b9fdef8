"""cuda.core and NVRTC: compiles, launches and copies. The kernel computes nothing on the software
GPU."""
import numpy as np
from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions, launch

SOURCE = """
template <typename T> __global__ void scale(T *x, T a, int n) {
    __shared__ T s[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x % 64] = x[i];
    __syncthreads();
    if (i < n) x[i] = a * s[threadIdx.x % 64];
}
"""
N, LAUNCHES = 1000, 7
device = Device(0)
device.set_current()
stream = device.create_stream()
options = ProgramOptions(arch=f"sm_{device.arch}", std="c++17")
module = Program(SOURCE, "c++", options).compile("cubin", name_expressions=("scale<float>", "scale<double>"))
for name in ("scale<float>", "scale<double>"):
    kernel = module.get_kernel(name)
    print(name, "parameters:", kernel.num_arguments, "shared:", kernel.attributes.shared_size_bytes)
kernel = module.get_kernel("scale<float>")
print("blocks per SM:", kernel.occupancy.max_active_blocks_per_multiprocessor(256, 0))
bytes_ = 4 * N
pinned = LegacyPinnedMemoryResource()
there, back, memory = pinned.allocate(bytes_), pinned.allocate(bytes_), device.allocate(bytes_, stream=stream)
sent = np.from_dlpack(there).view(np.float32)
sent[:] = np.arange(N, dtype=np.float32)
memory.copy_from(there, stream=stream)
for _ in range(LAUNCHES):
    launch(stream, LaunchConfig(grid=4, block=256), kernel, memory, np.float32(2), np.int32(N))
memory.copy_to(back, stream=stream)
stream.sync()
# The kernel computed nothing: the returned data is the sent data.
print("as sent:", bool((np.from_dlpack(back).view(np.float32) == sent).all()))
memory.close(stream)
stream.close()
# cuda.core copies by cuMemcpyAsync, which does not state a direction.
print(f"launches={LAUNCHES} copied_bytes={2 * bytes_}")
