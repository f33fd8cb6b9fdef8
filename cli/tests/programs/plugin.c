/* A library that works with CUDA by itself: it finds the driver through the door it is told. */
#include "cuda_min.h"

int plugin_run(const char *door, unsigned rounds) {
    struct work work;
    open_door(door);
    work_open(&work, PLAIN_IMAGE);
    for (unsigned round = 0; round < rounds; round++) work_launch(&work, NULL);
    work_check(&work);
    CHECK(cu.CtxDestroy(work.context));
    say_asked();
    return 0;
}
