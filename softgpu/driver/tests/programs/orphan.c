/* Waits for work on a device whose server dies: the call returns an error. */
#include "cuda_min.h"
#include <unistd.h>

int main(void) {
    start();
    CUfunction longer = function("long");
    for (int i = 0; i < 900; i++) run(longer, 1, NULL, NULL);
    SHOW(write(1, "busy\n", 5) == 5);
    WANT(46, cuCtxSynchronize());
    CUdeviceptr memory;
    WANT(46, cuMemAlloc_v2(&memory, 1));
    return 0;
}
