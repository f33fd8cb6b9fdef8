/* outlast WAY: a call that lasts until a line comes on standard input, for which a function of the host waits that the call's stream has
 * before it. Then says what the call answered and what was asked for, and lasts until it is told to end.
 *
 *   copy    a copy of a few KiB to the host
 *   long    a copy of 8 MiB to the device; before it, with nothing in flight, it says "idle" and waits for a line
 *   fails   the same, which the driver will refuse; nothing of it is asked for */
#include "cuda_min.h"

#define LONG_BYTES ((size_t)8 << 20)

CUresult cuLaunchHostFunc(CUstream, void (*)(void *), void *);

/* A byte at a time: the rest is the end's. */
static void wait_for_line(void *unused) {
    char byte;
    (void)unused;
    while (read(0, &byte, 1) > 0 && byte != '\n') {}
}

int main(int argc, char **argv) {
    struct work work;
    CUdeviceptr device;
    float few[ELEMENTS];
    char *many = calloc(1, LONG_BYTES);
    if (argc != 2 || many == NULL) return 2;
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    CHECK(cu.MemAlloc(&device, LONG_BYTES));
    work_launch(&work, NULL);
    CHECK(cu.CtxSynchronize());
    if (strcmp(argv[1], "copy")) {
        say("idle");
        wait_for_line(NULL);
    }
    CHECK(cuLaunchHostFunc(NULL, wait_for_line, NULL));
    say("waits");
    if (!strcmp(argv[1], "copy")) to_host(few, work.y, sizeof few);
    else if (!strcmp(argv[1], "long")) to_device(device, many, LONG_BYTES);
    else printf("result %u\n", cu.MemcpyHtoD(device, many, LONG_BYTES));
    say("over");
    say_asked();
    fflush(stdout);
    wait_until_told_to_end();
    return 0;
}
