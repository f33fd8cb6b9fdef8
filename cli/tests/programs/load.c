/* load MIB [hold]: holds MIB of device memory. Works until standard input ends, and marks each
 * round as an iteration; with a second argument it only holds the memory. */
#include "../../../include/pillion.h"
#include "cuda_min.h"

#define LONG_IMAGE "softgpu-module 1\nkernel long block_ns=2000000 regs=32 shared=0 compute=0.5 bandwidth=0.25\n"

int main(int argc, char **argv) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction longer;
    CUdeviceptr memory;
    open_door("linked");
    CHECK(cu.Init(0));
    CHECK(cu.DeviceGet(&device, 0));
    CHECK(cu.CtxCreate(&context, 0, device));
    CHECK(cu.ModuleLoadData(&module, LONG_IMAGE));
    CHECK(cu.ModuleGetFunction(&longer, module, "long"));
    CHECK(cu.MemAlloc(&memory, strtoull(argv[1], NULL, 10) << 20));
    if (argc > 2) {
        say("ready");
        wait_until_told_to_end();
        return 0;
    }
    do {
        for (int i = 0; i < 20; i++) launch(longer, 80, NULL, NULL);
        CHECK(cu.CtxSynchronize());
        pillion_iteration();
        say("round");
    } while (!is_told_to_end());
    return 0;
}
