/* faulty: for each line of standard input launches a kernel, waits for it and prints the result,
 * until the input ends. No result of the driver ends the program. With an argument it ignores
 * SIGTERM. */
#include <signal.h>

#include "cuda_min.h"

#define IMAGE "softgpu-module 1\nkernel long block_ns=100000 regs=32 shared=0 compute=0.5 bandwidth=0.25\n"

int main(int argc, char **argv) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction function;
    char line[64];
    (void)argv;
    if (argc > 1) signal(SIGTERM, SIG_IGN);
    open_door("linked");
    CHECK(cu.Init(0));
    CHECK(cu.DeviceGet(&device, 0));
    CHECK(cu.CtxCreate(&context, 0, device));
    CHECK(cu.ModuleLoadData(&module, IMAGE));
    CHECK(cu.ModuleGetFunction(&function, module, "long"));
    say("ready");
    while (fgets(line, sizeof line, stdin)) {
        int launched = cu.LaunchKernel(function, 80, 1, 1, 128, 1, 1, 0, NULL, NULL, NULL);
        int waited = cu.CtxSynchronize();
        printf("launch %d wait %d\n", launched, waited);
        fflush(stdout);
    }
    return 0;
}
