"""numba-cuda: compiles with NVVM, launches and copies. The kernel computes nothing on the software
GPU."""
import warnings

import numpy as np
from numba import cuda

warnings.simplefilter("ignore")


@cuda.jit
def double(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= 2


LAUNCHES = 9
sent = np.arange(1000, dtype=np.float32)
memory = cuda.to_device(sent)
stream = cuda.stream()
for _ in range(LAUNCHES - 4):
    double[4, 256](memory)
for _ in range(4):
    double[4, 256, stream](memory)
stream.synchronize()
cuda.synchronize()
registers = next(iter(double.get_regs_per_thread().values()))
# The kernel computed nothing: the returned data is the sent data.
print("registers:", registers > 0, "as sent:", bool((memory.copy_to_host() == sent).all()))
print(f"launches={LAUNCHES} copied_h2d_bytes={sent.nbytes} copied_d2h_bytes={sent.nbytes}")
