/* Launches with packed parameters, and launches of one kernel on several devices. */
#include "code.h"

enum { N = 1000 };

static void expect(CUdeviceptr memory, float value) {
    float host[N];
    DO(cuMemcpyDtoH_v2(host, memory, sizeof host));
    for (int i = 0; i < N; i++)
        SHOW(host[i] == value);
}

int main(void) {
    CUdeviceptr memory;
    CUstream stream;
    start();
    DO(cuMemAlloc_v2(&memory, N * 4));
    CUfunction fill = function("fill");
    DO(cuStreamCreate(&stream, 1));
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
