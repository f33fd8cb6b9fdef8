/* work_ends HOW: launches ten kernels of 5 ms and ends the object that they run in meanwhile.
 * Prints "ended" and stays.
 *
 *   stream    destroys their stream
 *   context   destroys their context with the stream alive
 *   reset     resets the device, whose primary context they run in
 *   fault     one more kernel writes to an invalid address: a sticky error
 *   thread    they are on the default stream of a thread that ends */
#include "cuda_min.h"

#define ILLEGAL_ADDRESS 700

CUresult cuStreamDestroy_v2(CUstream);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice);
CUresult cuLaunchKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                             void **, void **);

static CUcontext context;
static CUfunction slow, saxpy;

static void *launch_and_end(void *unused) {
    (void)unused;
    CHECK(cu.CtxSetCurrent(context));
    for (int i = 0; i < 10; i++) {
        CHECK(cuLaunchKernel_ptsz(slow, 1, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL));
        atomic_fetch_add(&asked.launches, 1);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    const char *how = argv[1];
    CUmodule module;
    CUstream stream;
    open_door("linked");
    CHECK(cu.Init(0));
    if (strcmp(how, "reset") == 0) {
        CHECK(cuDevicePrimaryCtxRetain(&context, 0));
        CHECK(cu.CtxSetCurrent(context));
    } else {
        CHECK(cu.CtxCreate(&context, 0, 0));
    }
    CHECK(cu.ModuleLoadData(&module, "softgpu-module 1\n"
                                     "kernel hang block_ns=5000000 regs=32 shared=0 compute=0.01 bandwidth=0.01\n"));
    CHECK(cu.ModuleGetFunction(&slow, module, "hang"));
    CHECK(cu.ModuleGetFunction(&saxpy, module, "saxpy"));
    CHECK(cu.StreamCreate(&stream, 1));
    if (strcmp(how, "thread") == 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, launch_and_end, NULL) != 0) return 3;
        pthread_join(thread, NULL);
    } else {
        for (int i = 0; i < 10; i++) launch(slow, 1, stream, NULL);
    }
    if (strcmp(how, "stream") == 0) {
        CHECK(cuStreamDestroy_v2(stream));
    } else if (strcmp(how, "context") == 0) {
        CHECK(cu.CtxDestroy(context));
    } else if (strcmp(how, "reset") == 0) {
        CHECK(cuDevicePrimaryCtxReset_v2(0));
    } else if (strcmp(how, "fault") == 0) {
        CUdeviceptr nowhere = 0x7700;
        float a = 1;
        unsigned n = ELEMENTS;
        void *parameters[] = {&a, &nowhere, &nowhere, &n};
        launch(saxpy, ELEMENTS / 256, stream, parameters);
        CUdeviceptr memory;
        if (cu.StreamSynchronize(stream) != ILLEGAL_ADDRESS) return 4;
        /* The error is sticky: every call reports it. */
        if (cu.CtxSynchronize() != ILLEGAL_ADDRESS || cu.MemAlloc(&memory, 4) != ILLEGAL_ADDRESS ||
            cu.LaunchKernel(slow, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL) != ILLEGAL_ADDRESS)
            return 5;
    }
    say("ended");
    wait_until_told_to_end();
    printf("launches=%lu\n", atomic_load(&asked.launches));
    fflush(stdout);
    _exit(0);
}
