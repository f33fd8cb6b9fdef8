/* Takes memory and work, says so, and goes on until it is killed. */
#include "cuda_min.h"
#include <unistd.h>

int main(void) {
    start();
    CUdeviceptr memory;
    DO(cuMemAlloc_v2(&memory, 8ull << 30));
    CUfunction longer = function("long");
    /* Two seconds of it: the device is not to be idle because this process gets no processor for a
     * while. */
    for (int i = 0; i < 1000; i++) run(longer, 1, NULL, NULL);
    SHOW(write(1, "busy\n", 5) == 5);
    for (;;) run(longer, 1, NULL, NULL);
}
