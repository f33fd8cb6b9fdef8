/* memory_devices: holds memory on two devices while the other one is current, and prints its
 * requests to each. */
#include "cuda_mem.h"

#define DEVICES 2

int main(void) {
    struct { unsigned long allocations, bytes, frees; } on[DEVICES] = {{0}};
    CUcontext contexts[DEVICES];
    CUdeviceptr plain[DEVICES], pooled[DEVICES];
    CUstream streams[DEVICES];
    CUhandle handles[DEVICES];
    size_t piece;
    CHECK(cuInit(0));
    for (int i = 0; i < DEVICES; i++) {
        CHECK(cuCtxCreate_v2(&contexts[i], 0, i));
        CHECK(cuStreamCreate(&streams[i], 1));
        CHECK(cuMemAlloc_v2(&plain[i], 1000 + i));
        on[i].allocations++;
        on[i].bytes += 1000 + i;
    }
    /* From here on the other device is current. */
    for (int i = 0; i < DEVICES; i++) {
        CHECK(cuCtxSetCurrent(contexts[1 - i]));
        AllocationProp prop = {.type = 1, .location = {1, i}};
        CHECK(cuMemGetAllocationGranularity(&piece, &prop, 0));
        CHECK(cuMemCreate(&handles[i], (i + 1) * piece, &prop, 0));
        CHECK(cuMemAllocAsync(&pooled[i], 5000 + i, streams[i]));
        on[i].allocations += 2;
        on[i].bytes += (i + 1) * piece + 5000 + i;
    }
    /* Three frees on device 0, one on device 1; the end of the process frees the rest there. */
    CHECK(cuCtxSetCurrent(contexts[1]));
    CHECK(cuMemFree_v2(plain[0]));
    CHECK(cuMemRelease(handles[0]));
    CHECK(cuMemFreeAsync(pooled[0], streams[0]));
    on[0].frees = 3;
    CHECK(cuCtxSetCurrent(contexts[0]));
    CHECK(cuMemFree_v2(plain[1]));
    on[1].frees = 1;
    CHECK(cuStreamSynchronize(streams[0]));
    for (int i = 0; i < DEVICES; i++)
        printf("allocations_%d=%lu allocated_bytes_%d=%lu frees_%d=%lu\n", i, on[i].allocations, i, on[i].bytes, i,
               on[i].frees);
    return 0;
}
