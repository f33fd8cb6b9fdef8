/* several [held]: a launch on several devices. With "held" prints a line before and after it. */
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

int main(int argc, char **argv) {
    struct work work;
    CUfunction fill;
    CUstream stream;
    open_code();
    work_open(&work, PLAIN_IMAGE);
    CHECK(cu.ModuleGetFunction(&fill, work.module, "fill"));
    CHECK(cu.StreamCreate(&stream, 1));
    float value = 4;
    unsigned n = ELEMENTS;
    void *params[] = {&work.y, &value, &n};
    LaunchParams launch = {fill, 7, 1, 1, 32, 1, 1, 0, stream, params};
    if (argc > 1 && strcmp(argv[1], "held") == 0) say("ready");
    CHECK(code.cuLaunchCooperativeKernelMultiDevice(&launch, 1, 0));
    if (argc > 1 && strcmp(argv[1], "held") == 0) say("launched");
    atomic_fetch_add(&asked.launches, 1);
    expect(&work, work.y, 4);
    /* Launches that the driver refuses are not counted. */
    printf("no list: %u, ", code.cuLaunchCooperativeKernelMultiDevice(NULL, 1, 0));
    printf("none: %u, ", code.cuLaunchCooperativeKernelMultiDevice(&launch, 0, 0));
    launch.stream = NULL;
    printf("a default stream: %u\n", code.cuLaunchCooperativeKernelMultiDevice(&launch, 1, 0));
    CHECK(cu.CtxDestroy(work.context));
    say_asked();
    return 0;
}
