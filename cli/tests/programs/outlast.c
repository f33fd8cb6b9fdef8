/* outlast WAY: a call that lasts until a line arrives on standard input: its stream has a host
 * function before it, which waits for the line. Then prints its requests, and stays until standard
 * input ends.
 *
 *   copy    a copy of a few KiB to the host
 *   launch  a launch into a full stream; before it, with nothing in flight, the program prints
 *           "idle" and waits for a line */
#include "cuda_min.h"

/* Capacity of a stream of the software GPU. */
#define STREAM_DEPTH 1024

CUresult cuLaunchHostFunc(CUstream, void (*)(void *), void *);
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUstream);

static atomic_int lines;

/* Reads a byte at a time: the rest of the input belongs to the end of the program. */
static void wait_for_line(void *unused) {
    char byte;
    (void)unused;
    while (read(0, &byte, 1) > 0 && byte != '\n') {}
    lines++;
}

/* Fills the stream after the host function, which takes one of its places. */
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
