/* copies BYTES: copies so many bytes to the device, again and again, until standard input ends. */
#include "cuda_min.h"

int main(int argc, char **argv) {
    CUdevice device;
    CUcontext context;
    CUdeviceptr memory;
    if (argc != 2) return 2;
    size_t bytes = strtoull(argv[1], NULL, 10);
    char *host = calloc(1, bytes);
    if (host == NULL) return 2;
    open_door("linked");
    CHECK(cu.Init(0));
    CHECK(cu.DeviceGet(&device, 0));
    CHECK(cu.CtxCreate(&context, 0, device));
    CHECK(cu.MemAlloc(&memory, bytes));
    say("ready");
    do {
        CHECK(cu.MemcpyHtoD(memory, host, bytes));
    } while (!is_told_to_end());
    free(host);
    return 0;
}
