/* Launches of other times: shape and parameters set on the function; packed parameters; one kernel on several devices. */
#include "code.h"

enum { N = 1000 };

static void expect(CUdeviceptr memory, float value) {
    float host[N];
    DO(cuMemcpyDtoH_v2(host, memory, sizeof host));
    for (int i = 0; i < N; i++)
        SHOW(host[i] == value);
}

static void set(CUfunction fill, CUdeviceptr memory, float value) {
    DO(cuParamSetv(fill, 0, &memory, 8));
    DO(cuParamSetf(fill, 8, value));
    DO(cuParamSeti(fill, 12, N));
}

int main(void) {
    CUdeviceptr memory;
    CUstream stream;
    start();
    DO(cuMemAlloc_v2(&memory, N * 4));
    CUfunction fill = function("fill");
    WANT(INVALID_VALUE, cuLaunch(fill));
    WANT(INVALID_VALUE, cuFuncSetBlockShape(fill, 0, 1, 1));
    WANT(INVALID_HANDLE, cuFuncSetBlockShape(NULL, 1, 1, 1));
    WANT(INVALID_VALUE, cuParamSetSize(fill, 4097));
    WANT(INVALID_VALUE, cuParamSeti(fill, 4093, 1));
    DO(cuFuncSetBlockShape(fill, 64, 1, 1));
    set(fill, memory, 1);
    WANT(INVALID_VALUE, cuLaunch(fill));
    DO(cuParamSetSize(fill, 16));
    DO(cuLaunch(fill));
    expect(memory, 1);
    set(fill, memory, 2);
    DO(cuFuncSetSharedSize(fill, 1024));
    DO(cuLaunchGrid(fill, 3, 2));
    expect(memory, 2);
    WANT(INVALID_VALUE, cuLaunchGrid(fill, 0, 2));
    DO(cuFuncSetSharedSize(fill, 1 << 20));
    WANT(INVALID_VALUE, cuLaunchGrid(fill, 1, 1));
    DO(cuFuncSetSharedSize(fill, 0));
    DO(cuStreamCreate(&stream, 1));
    set(fill, memory, 3);
    DO(cuLaunchGridAsync(fill, 1, 1, stream));
    DO(cuStreamSynchronize(stream));
    expect(memory, 3);

    struct { CUdeviceptr memory; float value; unsigned n; } packed = {memory, 4, N};
    size_t bytes = sizeof packed;
    void *extra[] = {(void *)1, &packed, (void *)2, &bytes, NULL};
    DO(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
    DO(cuCtxSynchronize());
    expect(memory, 4);
    bytes = 12;
    WANT(INVALID_VALUE, cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));

    packed.value = 5;
    void *params[] = {&packed.memory, &packed.value, &packed.n};
    LaunchParams launch = {fill, 2, 1, 1, 32, 1, 1, 0, stream, params};
    DO(cuLaunchCooperativeKernelMultiDevice(&launch, 1, 0));
    DO(cuLaunchCooperativeKernelMultiDevice(&launch, 1, 3));
    DO(cuStreamSynchronize(stream));
    expect(memory, 5);
    WANT(INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(&launch, 0, 0));
    WANT(INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(&launch, 1, 4));
    LaunchParams twice[] = {launch, launch};
    WANT(INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(twice, 2, 0));
    launch.stream = NULL;
    WANT(INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(&launch, 1, 0));
    DO(cuMemFree_v2(memory));
    return 0;
}
