/* As many streams as argv[1] connections are independent; one more waits for another. */
#include "cuda_min.h"

CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, uint32_t, unsigned);

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    start();
    int connections = atoi(argv[1]);
    CUfunction shorter = function("short");
    volatile uint32_t *gate;
    CUstream streams[40];
    DO(cuMemHostAlloc((void **)&gate, 64, 0));
    *gate = 0;
    /* The legacy stream has the first connection, without work. */
    for (int i = 0; i <= connections; i++) DO(cuStreamCreate(&streams[i], 1));
    CUstream first = streams[0], last = streams[connections];
    DO(cuStreamWaitValue32_v2(first, (CUdeviceptr)gate, 1, 0));
    run(shorter, 1, last, NULL);
    for (int i = 1; i < connections; i++) {
        run(shorter, 1, streams[i], NULL);
        DO(cuStreamSynchronize(streams[i]));
    }
    for (int i = 0; i < 100; i++) WANT(NOT_READY, cuStreamQuery(last));
    /* A destroyed stream frees its connection for the next one. */
    if (connections > 1) {
        CUstream next;
        DO(cuStreamDestroy_v2(streams[1]));
        DO(cuStreamCreate(&next, 1));
        run(shorter, 1, next, NULL);
        DO(cuStreamSynchronize(next));
        WANT(NOT_READY, cuStreamQuery(last));
    }
    *gate = 1;
    DO(cuStreamSynchronize(last));
    DO(cuStreamSynchronize(first));
    return 0;
}
