/* host_driver: host functions that call the driver from the driver's thread, which CUDA forbids but
 * programs do. Prints the result of each call. */
#include "graph_min.h"

CUresult cuStreamQuery(CUstream);
CUresult cuCtxGetCurrent(CUcontext *);

static struct work work;
static CUstream stream;

static void answer(const char *call, CUresult result) { printf("%s %d\n", call, (int)result); }

static void call_all(void *context) {
    CUdeviceptr memory;
    CUcontext current;
    float a = 1;
    unsigned n = ELEMENTS;
    void *parameters[] = {&a, &work.x, &work.y, &n};
    answer("cuCtxGetCurrent", cuCtxGetCurrent(&current));
    if (context != NULL) answer("cuCtxSetCurrent", cu.CtxSetCurrent(context));
    answer("cuMemAlloc", cu.MemAlloc(&memory, 4096));
    answer("cuStreamQuery", cuStreamQuery(stream));
    answer("cuLaunchKernel", cu.LaunchKernel(work.saxpy, ELEMENTS / 256, 1, 1, 256, 1, 1, 0, stream, parameters, NULL));
    if (context != NULL) answer("cuCtxSetCurrent", cu.CtxSetCurrent(NULL));
}

int main(void) {
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    CHECK(cu.StreamCreate(&stream, 1));
    for (int i = 0; i < 3; i++) {
        work_launch(&work, stream);
        CHECK(cuLaunchHostFunc(stream, call_all, i == 0 ? NULL : work.context));
        CHECK(cu.StreamSynchronize(stream));
    }
    say("done");
    return 0;
}
