/* A query or a wait of the legacy stream covers earlier work in the context's blocking streams,
 * including destroyed ones, and no other work. Each stream waits at a gate, which never opens by
 * itself. */
#include "cuda_min.h"
#include <pthread.h>

CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, uint32_t, unsigned);
CUresult cuStreamQuery_ptsz(CUstream);

static const CUstream legacy = (CUstream)1, per_thread = (CUstream)2;
static CUcontext context;
static CUfunction longer;
static volatile uint32_t *gate;
static uint32_t gates;

static void close_gate(CUstream stream) { DO(cuStreamWaitValue32_v2(stream, (CUdeviceptr)gate, ++gates, 0)); }

static void open_gate(void) { *gate = gates; }

/* Waits while the work takes 2 ms: the streams are idle only if the wait covered them. */
static void expect_wait(void) {
    open_gate();
    DO(cuStreamSynchronize(NULL));
}

/* Work at the gate in this stream counts as earlier work of the legacy stream. */
static void expect_seen(CUstream stream) {
    close_gate(stream);
    run(longer, 1, stream, NULL);
    WANT(NOT_READY, cuStreamQuery(NULL));
    WANT(NOT_READY, cuStreamQuery_ptsz(legacy));
    expect_wait();
    DO(cuStreamQuery(stream));
    DO(cuStreamQuery(NULL));
}

/* Work at the gate in this stream does not count. */
static void expect_unseen(CUstream stream) {
    close_gate(stream);
    DO(cuStreamQuery(NULL));
    DO(cuStreamSynchronize(NULL));
    WANT(NOT_READY, cuStreamQuery(stream));
    open_gate();
    DO(cuStreamSynchronize(stream));
}

static void *use_own_stream(void *unused) {
    (void)unused;
    DO(cuCtxSetCurrent(context));
    close_gate(per_thread);
    return NULL;
}

int main(int argc, char **argv) {
    CUcontext other;
    CUstream blocking, free_stream, elsewhere;
    (void)argv;
    context = start();
    longer = function("long");
    DO(cuMemHostAlloc((void **)&gate, 64, 0));
    *gate = 0;
    DO(cuStreamCreate(&blocking, 0));
    DO(cuStreamCreate(&free_stream, 1));

    expect_seen(NULL);
    expect_seen(blocking);
    expect_seen(per_thread);
    expect_unseen(free_stream);

    /* The legacy stream does not cover streams of another context. */
    DO(cuCtxCreate_v2(&other, 0, 0));
    DO(cuStreamCreate(&elsewhere, 0));
    DO(cuCtxSetCurrent(context));
    expect_unseen(elsewhere);

    /* Another stream's query covers only its own work. */
    close_gate(blocking);
    DO(cuStreamQuery(free_stream));
    DO(cuStreamQuery(per_thread));
    open_gate();
    DO(cuStreamSynchronize(NULL));
    DO(cuStreamQuery(blocking));

    /* A destroyed stream still executes its work, and so does the default stream of a thread that
     * has ended. */
    close_gate(blocking);
    DO(cuStreamDestroy_v2(blocking));
    WANT(NOT_READY, cuStreamQuery(NULL));
    expect_wait();
    DO(cuStreamQuery(NULL));
    /* Without the virtual clock only: it would wait for the ended thread's next call. */
    if (argc == 1) {
        pthread_t thread;
        pthread_create(&thread, NULL, use_own_stream, NULL);
        pthread_join(thread, NULL);
        WANT(NOT_READY, cuStreamQuery(NULL));
        expect_wait();
        DO(cuStreamQuery(NULL));
    }
    return 0;
}
