/* A driver of five functions, whose cuCtxSynchronize waits until a signal or a cancellation. */
#include <unistd.h>

int cuInit(unsigned flags) {
    (void)flags;
    return 0;
}

int cuDeviceGetCount(int *count) {
    *count = 1;
    return 0;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return 0;
}

int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    (void)flags, (void)device;
    *context = (void *)0x1000;
    return 0;
}

/* The write end of a pipe, which receives a byte when a thread begins to wait here. */
int said[2] = {-1, -1};

int cuCtxSynchronize(void) {
    if (write(said[1], "w", 1) != 1) return 999;
    for (;;) pause();
}
