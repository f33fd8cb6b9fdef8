/* service COUNT KERNEL_NS LATE_NS: marks COUNT requests by include/pillion.h, one after the other
 * with a pause after each; each is three kernels. Prints how many took longer than LATE_NS by the
 * program's own clock. */
#include "../../../include/pillion.h"
#include "cuda_min.h"
#include <time.h>

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int main(int argc, char **argv) {
    struct work work;
    CUfunction kernel;
    char image[256];
    if (argc != 4) return 2;
    unsigned long count = strtoul(argv[1], NULL, 10), late = 0;
    uint64_t late_ns = strtoull(argv[3], NULL, 10);
    snprintf(image, sizeof image,
             "softgpu-module 1\nkernel serve block_ns=%s regs=32 shared=0 compute=0.5 bandwidth=0.25\n", argv[2]);
    open_door("linked");
    work_open(&work, image);
    CHECK(cu.ModuleGetFunction(&kernel, work.module, "serve"));
    say("ready");
    for (unsigned long i = 0; i < count; i++) {
        uint64_t arrived_ns = now_ns();
        pillion_request request = pillion_begin(arrived_ns, 0, 1);
        for (int k = 0; k < 3; k++) launch(kernel, 80, NULL, NULL);
        CHECK(cu.CtxSynchronize());
        late += now_ns() - arrived_ns > late_ns;
        if (request != 0 && pillion_end(request) != 0) return WRONG_RESULT;
        usleep(5000);
    }
    printf("late=%lu\n", late);
    say("served");
    wait_until_told_to_end();
    work_check(&work);
    say_asked();
    return 0;
}
