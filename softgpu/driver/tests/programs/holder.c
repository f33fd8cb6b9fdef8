/* Takes memory and work, says so, and goes on until it is killed. */
#include "cuda_min.h"
#include <unistd.h>

int main(void) {
    start();
    CUdeviceptr memory;
    DO(cuMemAlloc_v2(&memory, 8ull << 30));
    CUfunction longer = function("long");
    run(longer, 1, NULL, NULL);
    SHOW(write(1, "busy\n", 5) == 5);
    for (;;) run(longer, 1, NULL, NULL);
}
