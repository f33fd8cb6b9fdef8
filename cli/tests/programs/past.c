/* past MIB: a client of the daemon with MIB of GPU memory that its library does not see, allocated
 * through a driver in another linker namespace, and with work in flight that never ends. It ignores
 * SIGTERM. */
#include "cuda_min.h"

#define IMAGE "softgpu-module 1\nkernel hang block_ns=3600000000000 regs=32 shared=0 compute=0.01 bandwidth=0.01\n"

static void *apart(void *driver, const char *name) {
    void *address = driver == NULL ? NULL : dlsym(driver, name);
    if (address == NULL) {
        fprintf(stderr, "past: %s: %s\n", name, dlerror());
        exit(NOT_CUDA);
    }
    return address;
}

static void take(size_t bytes) {
    CUresult (*init)(unsigned), (*create)(CUcontext *, unsigned, CUdevice), (*alloc)(CUdeviceptr *, size_t);
    void *driver = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
    CUcontext context;
    CUdeviceptr memory;
    *(void **)&init = apart(driver, "cuInit");
    *(void **)&create = apart(driver, "cuCtxCreate_v2");
    *(void **)&alloc = apart(driver, "cuMemAlloc_v2");
    CHECK(init(0));
    CHECK(create(&context, 0, 0));
    CHECK(alloc(&memory, bytes));
}

int main(int argc, char **argv) {
    struct work work;
    CUfunction hang;
    if (argc != 2) return 2;
    signal(SIGTERM, SIG_IGN);
    open_door("linked");
    work_open(&work, IMAGE);
    CHECK(cu.ModuleGetFunction(&hang, work.module, "hang"));
    launch(hang, 1, NULL, NULL);
    take((size_t)strtoull(argv[1], NULL, 10) << 20);
    say("ready");
    wait_until_told_to_end();
    _exit(0);
}
