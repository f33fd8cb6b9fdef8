/* Shares the device with holder.c: sees that its memory is used, works beside it, and finds the
 * memory free after its exit. */
#include "cuda_min.h"

int main(void) {
    char line[8];
    size_t before, after, total;
    start();
    unsigned n = 1000;
    float one = 1, sum;
    CUdeviceptr memory, big;
    DO(cuMemAlloc_v2(&memory, n * 4));
    DO(cuMemGetInfo_v2(&before, &total));
    SHOW(total - before > 8ull << 30);
    WANT(OUT_OF_MEMORY, cuMemAlloc_v2(&big, 9ull << 30));
    CUfunction fill = function("fill"), reduce = function("reduce");
    for (int i = 0; i < 50; i++) {
        run(fill, 4, NULL, (void *[]){&memory, &one, &n});
        CUdeviceptr out = memory;
        run(reduce, 4, NULL, (void *[]){&memory, &out, &n});
        DO(cuMemcpyDtoH_v2(&sum, memory, 4));
        SHOW(sum == n);
    }
    puts("kill");
    fflush(stdout);
    SHOW(fgets(line, sizeof line, stdin)); /* The holder is dead now. */
    do DO(cuMemGetInfo_v2(&after, &total)); while (after == before);
    SHOW(total - after < 1 << 20);
    DO(cuMemAlloc_v2(&big, 9ull << 30));
    run(fill, 4, NULL, (void *[]){&memory, &one, &n});
    DO(cuCtxSynchronize());
    return 0;
}
