/* A stream of one device waits for an event of another. */
#include "cuda_min.h"

CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, uint32_t, unsigned);
CUresult cuStreamWriteValue32_v2(CUstream, CUdeviceptr, uint32_t, unsigned);

int main(void) {
    CUcontext contexts[2];
    CUstream streams[2];
    CUdeviceptr there;
    CUevent event;
    volatile uint32_t *word;
    uint32_t got = 0;
    DO(cuInit(0));
    for (int device = 0; device < 2; device++) {
        DO(cuCtxCreate_v2(&contexts[device], 0, device));
        DO(cuStreamCreate(&streams[device], 1));
    }
    DO(cuMemAlloc_v2(&there, 4));
    DO(cuMemsetD8_v2(there, 0, 4));
    DO(cuCtxSynchronize());
    DO(cuMemHostAlloc((void **)&word, 64, 0));
    *word = 0;
    DO(cuCtxSetCurrent(contexts[0]));
    DO(cuEventCreate(&event, 2));
    for (unsigned round = 1; round <= 20; round++) {
        DO(cuStreamWaitValue32_v2(streams[0], (CUdeviceptr)word, round, 1));
        DO(cuEventRecord(event, streams[0]));
        DO(cuStreamWaitEvent(streams[1], event, 0));
        DO(cuStreamWriteValue32_v2(streams[1], there, round, 0));
        WANT(NOT_READY, cuStreamQuery(streams[1]));
        *word = round;
        DO(cuStreamSynchronize(streams[1]));
        DO(cuEventQuery(event));
        DO(cuCtxSetCurrent(contexts[1]));
        DO(cuMemcpyDtoH_v2(&got, there, 4));
        DO(cuCtxSetCurrent(contexts[0]));
        SHOW(got == round);
    }
    return 0;
}
