/* legacy [held]: launches as before CUDA 4, and one on several devices. With "held" it stops before the first launch to say
 * so, and after it. */
#include "code.h"

static void expect(struct work *work, CUdeviceptr memory, float value) {
    static float host[ELEMENTS];
    CHECK(cu.CtxSynchronize());
    to_host(host, memory, sizeof host);
    for (int i = 0; i < ELEMENTS; i++)
        if (host[i] != value) {
            printf("wrong: %g is not %g\n", (double)host[i], (double)value);
            exit(WRONG_RESULT);
        }
    (void)work;
}

static void set(CUfunction fill, CUdeviceptr memory, float value) {
    CHECK(code.cuParamSetSize(fill, 16));
    CHECK(code.cuParamSetv(fill, 0, &memory, 8));
    CHECK(code.cuParamSetf(fill, 8, value));
    CHECK(code.cuParamSeti(fill, 12, ELEMENTS));
}

int main(int argc, char **argv) {
    struct work work;
    CUfunction fill;
    CUstream stream;
    open_code();
    work_open(&work, PLAIN_IMAGE);
    CHECK(cu.ModuleGetFunction(&fill, work.module, "fill"));
    /* Nothing is counted of what the driver refuses. */
    printf("without a shape: %u\n", code.cuLaunch(fill));
    CHECK(code.cuFuncSetBlockShape(fill, 128, 2, 1));
    set(fill, work.y, 1);
    if (argc > 1 && strcmp(argv[1], "held") == 0) say("ready");
    CHECK(code.cuLaunch(fill));
    if (argc > 1 && strcmp(argv[1], "held") == 0) say("launched");
    atomic_fetch_add(&asked.launches, 1);
    expect(&work, work.y, 1);
    CHECK(code.cuFuncSetSharedSize(fill, 4096));
    set(fill, work.y, 2);
    CHECK(code.cuLaunchGrid(fill, 3, 2));
    atomic_fetch_add(&asked.launches, 1);
    expect(&work, work.y, 2);
    printf("without a grid: %u\n", code.cuLaunchGrid(fill, 0, 1));
    CHECK(cu.StreamCreate(&stream, 1));
    CHECK(code.cuFuncSetSharedSize(fill, 0));
    set(fill, work.y, 3);
    CHECK(code.cuLaunchGridAsync(fill, 5, 1, stream));
    atomic_fetch_add(&asked.launches, 1);
    expect(&work, work.y, 3);
    float value = 4;
    unsigned n = ELEMENTS;
    void *params[] = {&work.y, &value, &n};
    LaunchParams launch = {fill, 7, 1, 1, 32, 1, 1, 0, stream, params};
    CHECK(code.cuLaunchCooperativeKernelMultiDevice(&launch, 1, 0));
    atomic_fetch_add(&asked.launches, 1);
    expect(&work, work.y, 4);
    printf("no list: %u, ", code.cuLaunchCooperativeKernelMultiDevice(NULL, 1, 0));
    printf("none: %u, ", code.cuLaunchCooperativeKernelMultiDevice(&launch, 0, 0));
    launch.stream = NULL;
    printf("a default stream: %u\n", code.cuLaunchCooperativeKernelMultiDevice(&launch, 1, 0));
    CHECK(cu.CtxDestroy(work.context));
    say_asked();
    return 0;
}
