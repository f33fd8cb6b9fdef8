/* Takes memory and launches work, prints "busy", and continues until it is killed. */
#include "cuda_min.h"
#include <unistd.h>

int main(void) {
    start();
    CUdeviceptr memory;
    DO(cuMemAlloc_v2(&memory, 8ull << 30));
    CUfunction longer = function("long");
    /* Two seconds of work, so that the device is not idle while this process gets no processor. */
    for (int i = 0; i < 1000; i++) run(longer, 1, NULL, NULL);
    SHOW(write(1, "busy\n", 5) == 5);
    for (;;) run(longer, 1, NULL, NULL);
}
