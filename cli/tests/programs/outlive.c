/* outlive NS: launches a kernel that lasts for NS, copies what lies behind it to the host, and ends as soon as it has that. */
#include "cuda_min.h"

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    char image[256];
    struct work work;
    CUfunction lasting;
    float host[ELEMENTS];
    snprintf(image, sizeof image,
             "softgpu-module 1\nkernel lasting block_ns=%s regs=32 shared=0 compute=0.01 bandwidth=0.01\n", argv[1]);
    open_door("linked");
    work_open(&work, image);
    CHECK(cu.ModuleGetFunction(&lasting, work.module, "lasting"));
    launch(lasting, 1, NULL, NULL);
    say("launched");
    to_host(host, work.y, sizeof host);
    say_asked();
    return 0;
}
