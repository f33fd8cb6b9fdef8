/* CUDA work for programs of other languages, through C. */
#ifndef NATIVE_WORK_H
#define NATIVE_WORK_H
#include "cuda_min.h"

static struct work native_work;

/* Launches twelve times and checks the result. */
static unsigned long use_cuda(void) {
    open_door("dlsym");
    work_open(&native_work, PLAIN_IMAGE);
    for (int i = 0; i < 12; i++) work_launch(&native_work, NULL);
    work_check(&native_work);
    say_asked();
    return atomic_load(&asked.launches);
}

/* Launches two kernels of 300 ms and does not wait for them. */
static void leave_in_flight(void) {
    CUfunction lasting;
    open_door("dlsym");
    work_open(&native_work, "softgpu-module 1\nkernel lasting block_ns=300000000 regs=32 shared=0 compute=0.01 bandwidth=0.01\n");
    CHECK(cu.ModuleGetFunction(&lasting, native_work.module, "lasting"));
    for (int i = 0; i < 2; i++) launch(lasting, 1, NULL, NULL);
}

/* Launches once more, from any thread, and checks the result. */
static void finish_work(void) {
    CHECK(cu.CtxSetCurrent(native_work.context));
    work_launch(&native_work, NULL);
    work_check(&native_work);
}

#endif
