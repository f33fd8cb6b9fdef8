/* hang BLOCK_NS LAUNCHES: launches kernels of one block that last for BLOCK_NS and never synchronises. */
#include "cuda_min.h"

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    char image[256];
    struct work work;
    CUfunction hang;
    snprintf(image, sizeof image,
             "softgpu-module 1\nkernel hang block_ns=%s regs=32 shared=0 compute=0.01 bandwidth=0.01\n", argv[1]);
    open_door("linked");
    work_open(&work, image);
    CHECK(cu.ModuleGetFunction(&hang, work.module, "hang"));
    for (int i = atoi(argv[2]); i > 0; i--) launch(hang, 1, NULL, NULL);
    say("launched");
    wait_until_told_to_end();
    _exit(0);
}
