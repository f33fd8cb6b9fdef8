/* In null mode every call succeeds without an effect. */
#include "cuda_min.h"

int main(void) {
    start();
    CUdeviceptr a, b;
    CUevent event;
    CUstream stream;
    DO(cuMemAlloc_v2(&a, 1000));
    DO(cuMemAlloc_v2(&b, 1000));
    SHOW(a != b);
    DO(cuStreamCreate(&stream, 0));
    DO(cuEventCreate(&event, 0));
    CUfunction shorter = function("short");
    for (int i = 0; i < 100000; i++) run(shorter, 1, stream, NULL);
    DO(cuEventRecord(event, stream));
    DO(cuEventQuery(event));
    DO(cuStreamSynchronize(stream));
    DO(cuMemcpyHtoD_v2(a, &event, 8));
    DO(cuMemFree_v2(a));
    DO(cuCtxSynchronize());
    return 0;
}
