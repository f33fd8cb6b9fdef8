/* Streams, events and pinned memory keep the order that CUDA promises. */
#include "cuda_min.h"

CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, uint32_t, unsigned);

/* The work of a stream waits at the gate until the program opens it, however long this process gets
 * no processor meanwhile. */
static volatile uint32_t *gate;
static uint32_t gates;

static void close_gate(CUstream stream) { DO(cuStreamWaitValue32_v2(stream, (CUdeviceptr)gate, ++gates, 0)); }

static void open_gate(void) { *gate = gates; }

int main(void) {
    start();
    CUfunction longer = function("long"), fill = function("fill");
    CUstream blocking, other, free_stream;
    CUevent begin, end, untimed;
    CUdeviceptr memory;
    unsigned n = 1024;
    float one = 1, two = 2, *pinned, back[1024];
    DO(cuStreamCreate(&blocking, 0));
    DO(cuStreamCreate(&other, 0));
    DO(cuStreamCreate(&free_stream, 1));
    DO(cuEventCreate(&begin, 0));
    DO(cuEventCreate(&end, 0));
    DO(cuEventCreate(&untimed, 2));
    DO(cuMemAlloc_v2(&memory, n * 4));
    DO(cuMemHostAlloc((void **)&pinned, n * 4, 0));
    DO(cuMemHostAlloc((void **)&gate, 64, 0));
    *gate = 0;

    /* Event times are the device's: a kernel of one wave runs for its block time, 2 ms, and begins
     * 1.4 us after the previous one in its stream (LAUNCH_GAP_NS). */
    close_gate(blocking);
    run(longer, 1, blocking, NULL);
    DO(cuEventRecord(begin, blocking));
    run(longer, 1, blocking, NULL);
    DO(cuEventRecord(end, blocking));
    float ms;
    WANT(NOT_READY, cuEventQuery(end));
    WANT(NOT_READY, cuEventElapsedTime(&ms, begin, end));
    WANT(NOT_READY, cuStreamQuery(blocking));
    open_gate();
    DO(cuEventSynchronize(end));
    DO(cuEventQuery(end));
    DO(cuEventElapsedTime(&ms, begin, end));
    SHOW(ms > 2.001f && ms < 2.002f);
    WANT(INVALID_HANDLE, cuEventElapsedTime(&ms, begin, untimed));
    DO(cuEventQuery(untimed));

    /* The legacy stream waits for blocking streams, and they wait for it. */
    DO(cuEventRecord(begin, blocking));
    run(longer, 1, blocking, NULL);
    run(fill, 4, NULL, (void *[]){&memory, &one, &n});
    DO(cuEventRecord(end, other));
    DO(cuEventSynchronize(end));
    DO(cuStreamQuery(blocking));
    DO(cuEventElapsedTime(&ms, begin, end));
    SHOW(ms > 2.0f);
    /* A non-blocking stream does not wait for other streams. */
    close_gate(blocking);
    run(longer, 1, blocking, NULL);
    DO(cuStreamSynchronize(free_stream));
    run(fill, 4, free_stream, (void *[]){&memory, &two, &n});
    DO(cuStreamSynchronize(free_stream));
    WANT(NOT_READY, cuStreamQuery(blocking));
    open_gate();
    /* The thread's default stream is ordered with the legacy stream, too. */
    run(fill, 4, (CUstream)2, (void *[]){&memory, &one, &n});
    DO(cuStreamSynchronize((CUstream)2));

    /* A wait for an event orders streams that are otherwise independent. */
    close_gate(blocking);
    run(longer, 1, blocking, NULL);
    DO(cuEventRecord(untimed, blocking));
    DO(cuStreamWaitEvent(free_stream, untimed, 0));
    run(fill, 4, free_stream, (void *[]){&memory, &two, &n});
    DO(cuMemcpyDtoHAsync_v2(pinned, memory, n * 4, free_stream));
    WANT(NOT_READY, cuStreamQuery(free_stream));
    open_gate();
    DO(cuStreamSynchronize(free_stream));
    DO(cuStreamQuery(blocking));
    for (unsigned i = 0; i < n; i++) SHOW(pinned[i] == 2);

    /* Pageable memory may change as soon as the copy from it returns; pinned memory may not. */
    for (unsigned i = 0; i < n; i++) back[i] = 5;
    run(longer, 1, blocking, NULL);
    DO(cuMemcpyHtoDAsync_v2(memory, back, n * 4, blocking));
    memset(back, 0, sizeof back);
    DO(cuMemcpyDtoHAsync_v2(back, memory, n * 4, blocking));
    for (unsigned i = 0; i < n; i++) SHOW(back[i] == 5);
    close_gate(blocking);
    run(longer, 1, blocking, NULL);
    DO(cuMemcpyHtoDAsync_v2(memory, pinned, n * 4, blocking));
    WANT(NOT_READY, cuStreamQuery(blocking));
    for (unsigned i = 0; i < n; i++) pinned[i] = 7;
    open_gate();
    DO(cuMemcpyDtoH_v2(back, memory, n * 4));
    for (unsigned i = 0; i < n; i++) SHOW(back[i] == 7);
    /* A kernel reaches pinned memory by the same address. */
    CUdeviceptr alias;
    DO(cuMemHostGetDevicePointer_v2(&alias, pinned, 0));
    SHOW(alias == (CUdeviceptr)pinned);
    run(fill, 4, NULL, (void *[]){&alias, &one, &n});
    DO(cuCtxSynchronize());
    SHOW(pinned[0] == 1 && pinned[1023] == 1);
    int kind = 0;
    DO(cuPointerGetAttribute(&kind, 2, alias));
    SHOW(kind == 1);
    DO(cuPointerGetAttribute(&kind, 2, memory + 8));
    SHOW(kind == 2);
    WANT(INVALID_VALUE, cuPointerGetAttribute(&kind, 2, (CUdeviceptr)back));
    DO(cuMemFreeHost(pinned));

    /* A destroyed stream finishes its work, and its slot is reused. */
    for (int i = 0; i < 3000; i++) {
        CUstream stream;
        DO(cuStreamCreate(&stream, 1));
        if (i % 500 == 0) run(fill, 4, stream, (void *[]){&memory, &two, &n});
        DO(cuStreamDestroy_v2(stream));
        WANT(INVALID_HANDLE, cuStreamSynchronize(stream));
    }
    /* More launches than a stream holds. */
    CUfunction shorter = function("short");
    for (int i = 0; i < 3000; i++) run(shorter, 1, blocking, NULL);
    DO(cuCtxSynchronize());
    DO(cuEventDestroy_v2(begin));
    WANT(INVALID_HANDLE, cuEventQuery(begin));
    return 0;
}
