/* locking LOCK LIBRARY: gets a signal while its thread holds a lock of the process, with a kernel
 * of 100 ms in flight.
 *
 *   linker  opens the library, whose constructor prints "ready" and does not return
 *           (never_loaded.c)
 *   malloc  prints "ready" and calls malloc_trim on a fragmented heap without end: nearly all the
 *           time it holds the lock of the arena, which all threads share if MALLOC_ARENA_MAX=1 is
 *           in the environment */
#include "cuda_min.h"
#include <malloc.h>

#define PIECES 4000
#define PIECE_BYTES 12000

static void hold_malloc(void) {
    static void *pieces[PIECES];
    for (int i = 0; i < PIECES; i++) pieces[i] = malloc(PIECE_BYTES);
    for (int i = 0; i < PIECES; i += 2) free(pieces[i]);
    say("ready");
    while (1) malloc_trim(0);
}

int main(int argc, char **argv) {
    struct work work;
    CUfunction lasting;
    if (argc != 3) return 2;
    open_door("dlsym");
    work_open(&work, "softgpu-module 1\nkernel lasting block_ns=100000000 regs=32 shared=0 compute=0.01 bandwidth=0.01\n");
    CHECK(cu.ModuleGetFunction(&lasting, work.module, "lasting"));
    launch(lasting, 1, NULL, NULL);
    if (!strcmp(argv[1], "malloc")) hold_malloc();
    found(dlopen(argv[2], RTLD_NOW), argv[2]);
    return 0;
}
