/* loading: launches a kernel that never ends, says "ready", and loads a module from its standard
 * input. */
#include "cuda_min.h"

CUresult cuModuleLoad(CUmodule *, const char *);

int main(void) {
    struct work work;
    CUfunction endless;
    CUmodule module;
    open_door("linked");
    work_open(&work, "softgpu-module 1\nkernel endless block_ns=3600000000000 regs=32 shared=0 compute=0.01 bandwidth=0.01\n");
    CHECK(cu.ModuleGetFunction(&endless, work.module, "endless"));
    launch(endless, 1, NULL, NULL);
    say("ready");
    CHECK(cuModuleLoad(&module, "/dev/stdin"));
    say("loaded");
    return 0;
}
