/* sums: launches four kernels of 2 ms on the thread's default stream and waits for them, until
 * standard input ends. */
#include "cuda_min.h"

#define LONG_IMAGE "softgpu-module 1\nkernel long block_ns=2000000 regs=32 shared=0 compute=0.5 bandwidth=0.25\n"
#define PER_THREAD ((CUstream)2)

int main(void) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction longer;
    open_door("linked");
    CHECK(cu.Init(0));
    CHECK(cu.DeviceGet(&device, 0));
    CHECK(cu.CtxCreate(&context, 0, device));
    CHECK(cu.ModuleLoadData(&module, LONG_IMAGE));
    CHECK(cu.ModuleGetFunction(&longer, module, "long"));
    do {
        for (int i = 0; i < 4; i++) launch(longer, 80, PER_THREAD, NULL);
        CHECK(cu.StreamSynchronize(PER_THREAD));
        say("round");
    } while (!is_told_to_end());
    return 0;
}
