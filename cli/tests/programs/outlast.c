/* outlast WAY: a call that lasts until a line comes on standard input, for which a function of the
 * host waits that the call's stream has before it. Then says what was asked for, and lasts until it
 * is told to end.
 *
 *   copy    a copy of a few KiB to the host
 *   launch  a launch into a stream that is full; before it, with nothing in flight, it says "idle"
 *           and waits for a line */
#include "cuda_min.h"

/* What a stream of the software GPU holds. */
#define STREAM_DEPTH 1024

CUresult cuLaunchHostFunc(CUstream, void (*)(void *), void *);
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUstream);

static atomic_int lines;

/* A byte at a time: the rest is the end's. */
static void wait_for_line(void *unused) {
    char byte;
    (void)unused;
    while (read(0, &byte, 1) > 0 && byte != '\n') {}
    lines++;
}

/* Fills the stream behind the function of the host, which is one of what it holds. */
static void fill(CUdeviceptr byte) {
    for (int i = 1; i < STREAM_DEPTH; i++) CHECK(cuMemsetD8Async(byte, 0, 1, NULL));
}

int main(int argc, char **argv) {
    struct work work;
    float few[ELEMENTS];
    if (argc != 2) return 2;
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    work_launch(&work, NULL);
    CHECK(cu.CtxSynchronize());
    if (strcmp(argv[1], "copy")) {
        say("idle");
        wait_for_line(NULL);
    }
    CHECK(cuLaunchHostFunc(NULL, wait_for_line, NULL));
    if (strcmp(argv[1], "copy")) fill(work.x);
    say("waits");
    if (!strcmp(argv[1], "copy")) to_host(few, work.y, sizeof few);
    else {
        work_launch(&work, NULL);
        if (lines < 2) return WRONG_RESULT;
    }
    say("over");
    say_asked();
    fflush(stdout);
    wait_until_told_to_end();
    return 0;
}
