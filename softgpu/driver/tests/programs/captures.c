/* Stream capture: recorded operations, and operations that are refused and invalidate it. */
#define _GNU_SOURCE
#include <pthread.h>
#include "graph_min.h"

#define N 1000

static CUfunction fill, add;
static CUdeviceptr x, y;
static unsigned n = N;
static CUstream origin, other, free_stream;
static CUevent fork_event, join_event, old;
static CUcontext context;

static void fill_on(CUstream stream, CUdeviceptr *to, float value) {
    DO(cuLaunchKernel(fill, 4, 1, 1, 256, 1, 1, 0, stream, (void *[]){to, &value, &n}, NULL));
}

static void expect(CUdeviceptr at, float value) {
    float back[N];
    DO(cuCtxSynchronize());
    DO(cuMemcpyDtoH_v2(back, at, sizeof back));
    for (int i = 0; i < N; i++) SHOW(back[i] == value);
}

static int status_of(CUstream stream) {
    int status = -1;
    DO(cuStreamIsCapturing(stream, &status));
    return status;
}

static int called;
static void call(void *data) { (void)data, called++; }

/* Two streams fork and join. */
static void fork_and_join(int mode) {
    CUgraph graph, seen;
    CUgraphExec exec;
    uint64_t id;
    size_t count;
    int status;
    const CUgraphNode *after;
    DO(cuMemsetD32Async(x, 0, N, NULL));
    DO(cuMemsetD32Async(y, 0, N, NULL));
    DO(cuCtxSynchronize());
    DO(cuStreamBeginCapture_v2(origin, mode));
    WANT(ILLEGAL_STATE, cuStreamBeginCapture_v2(origin, mode));
    fill_on(origin, &x, 1);
    DO(cuEventRecord(fork_event, origin));
    DO(cuStreamWaitEvent(other, fork_event, 0));
    SHOW(status_of(origin) == 1 && status_of(other) == 1 && status_of(free_stream) == 0);
    fill_on(other, &y, 2);
    DO(cuMemsetD32Async(x, 0, 1, origin));
    DO(cuMemcpyDtoDAsync_v2(x, y, 4, other));
    DO(cuLaunchHostFunc(other, call, NULL));
    DO(cuEventRecord(join_event, other));
    DO(cuStreamWaitEvent(origin, join_event, 0));
    DO(cuLaunchKernel(add, 4, 1, 1, 256, 1, 1, 0, origin, (void *[]){&x, &y, &x, &n}, NULL));
    DO(cuStreamGetCaptureInfo_v2(origin, &status, &id, &seen, &after, &count));
    SHOW(status == 1 && id != 0 && count == 1);
    int type;
    DO(cuGraphNodeGetType(after[0], &type));
    SHOW(type == KERNEL);
    WANT(CAPTURE_UNMATCHED, cuStreamEndCapture(other, &graph));
    DO(cuStreamIsCapturing(origin, &status));
    SHOW(status == 2);
    WANT(CAPTURE_INVALIDATED, cuStreamEndCapture(origin, &graph));
    SHOW(graph == NULL && status_of(origin) == 0 && status_of(other) == 0);

    /* Again, without the error. */
    DO(cuStreamBeginCapture_v2(origin, mode));
    fill_on(origin, &x, 1);
    DO(cuEventRecord(fork_event, origin));
    DO(cuStreamWaitEvent(other, fork_event, 0));
    fill_on(other, &y, 2);
    DO(cuLaunchHostFunc(other, call, NULL));
    DO(cuEventRecord(join_event, other));
    DO(cuStreamWaitEvent(origin, join_event, 0));
    DO(cuLaunchKernel(add, 4, 1, 1, 256, 1, 1, 0, origin, (void *[]){&x, &y, &x, &n}, NULL));
    DO(cuStreamEndCapture(origin, &graph));
    expect(x, 0);
    CUgraphNode nodes[8], from[8], to[8];
    count = 8;
    DO(cuGraphGetNodes(graph, nodes, &count));
    SHOW(count == 4);
    count = 8;
    DO(cuGraphGetEdges(graph, from, to, &count));
    SHOW(count == 4);
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    called = 0;
    DO(cuGraphLaunch(exec, origin));
    expect(x, 3);
    SHOW(called == 1);

    /* A graph that is launched in a capture becomes a child graph. */
    DO(cuStreamBeginCapture_v2(origin, mode));
    DO(cuGraphLaunch(exec, origin));
    fill_on(origin, &y, 9);
    CUgraph outer;
    CUgraphExec both;
    DO(cuStreamEndCapture(origin, &outer));
    DO(cuGraphInstantiateWithFlags(&both, outer, 0));
    DO(cuGraphExecDestroy(exec));
    DO(cuGraphDestroy(graph));
    DO(cuMemsetD32Async(x, 0, N, origin));
    DO(cuGraphLaunch(both, origin));
    expect(x, 3);
    expect(y, 9);
    DO(cuGraphExecDestroy(both));
    DO(cuGraphDestroy(outer));
}

/* Begins a capture, makes a call that must be refused, and checks whether the capture is
 * invalidated. */
#define REFUSED(mode, code, is_void, call) do { \
        CUgraph none_; \
        DO(cuStreamBeginCapture_v2(origin, mode)); \
        fill_on(origin, &x, 1); \
        WANT(code, call); \
        WANT((is_void) ? CAPTURE_INVALIDATED : OK, cuStreamEndCapture(origin, &none_)); \
        SHOW(status_of(origin) == 0); \
    } while (0)

static void refusals(void) {
    CUdeviceptr memory;
    CUgraph graph;
    int status;
    for (int mode = GLOBAL; mode <= THREAD_LOCAL; mode++) {
        REFUSED(mode, CAPTURE_UNSUPPORTED, 1, cuMemAlloc_v2(&memory, 64));
        REFUSED(mode, CAPTURE_UNSUPPORTED, 1, cuMemFree_v2(y));
        REFUSED(mode, CAPTURE_UNSUPPORTED, 1, cuEventQuery(old));
        REFUSED(mode, CAPTURE_UNSUPPORTED, 1, cuStreamSynchronize(free_stream));
    }
    REFUSED(RELAXED, OK, 0, cuEventQuery(old));
    REFUSED(RELAXED, OK, 0, cuStreamSynchronize(free_stream));
    for (int mode = GLOBAL; mode <= RELAXED; mode++) {
        REFUSED(mode, CAPTURE_UNSUPPORTED, 1, cuStreamSynchronize(origin));
        REFUSED(mode, CAPTURE_UNSUPPORTED, 1, cuStreamQuery(origin));
        REFUSED(mode, CAPTURE_UNSUPPORTED, 1, cuCtxSynchronize());
        /* The legacy stream is ordered with the origin. */
        REFUSED(mode, CAPTURE_IMPLICIT, 1, cuMemsetD32Async(y, 0, 1, NULL));
        REFUSED(mode, CAPTURE_IMPLICIT, 1, cuMemcpyHtoD_v2(y, &mode, 4));
        REFUSED(mode, CAPTURE_IMPLICIT, 0, cuStreamIsCapturing(NULL, &status));
        REFUSED(mode, CAPTURE_ISOLATION, 1, cuStreamWaitEvent(origin, old, 0));
        REFUSED(mode, CAPTURE_UNSUPPORTED, 1, cuStreamAddCallback(origin, (void *)call, NULL, 0));
        REFUSED(mode, OK, 0, cuMemsetD32Async(y, 0, 1, free_stream));
        /* An event that was recorded in a capture. */
        DO(cuStreamBeginCapture_v2(origin, mode));
        DO(cuEventRecord(fork_event, origin));
        WANT(mode == RELAXED ? CAPTURED_EVENT : CAPTURE_UNSUPPORTED, cuEventQuery(fork_event));
        WANT(CAPTURE_INVALIDATED, cuStreamEndCapture(origin, &graph));
        WANT(CAPTURED_EVENT, cuEventSynchronize(fork_event));
        DO(cuEventRecord(fork_event, origin));
        DO(cuEventSynchronize(fork_event));
        /* Forked work that was not joined. */
        DO(cuStreamBeginCapture_v2(origin, mode));
        DO(cuEventRecord(fork_event, origin));
        DO(cuStreamWaitEvent(other, fork_event, 0));
        fill_on(other, &y, 1);
        WANT(CAPTURE_UNJOINED, cuStreamEndCapture(origin, &graph));
        SHOW(graph == NULL && status_of(other) == 0);
        /* Two captures cannot be merged. */
        DO(cuStreamBeginCapture_v2(origin, mode));
        DO(cuStreamBeginCapture_v2(other, mode));
        DO(cuEventRecord(fork_event, origin));
        WANT(CAPTURE_MERGE, cuStreamWaitEvent(other, fork_event, 0));
        WANT(CAPTURE_INVALIDATED, cuStreamEndCapture(origin, &graph));
        WANT(CAPTURE_INVALIDATED, cuStreamEndCapture(other, &graph));
        DO(cuEventRecord(fork_event, origin));
    }
    WANT(CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(NULL, GLOBAL));
    WANT(ILLEGAL_STATE, cuStreamEndCapture(origin, &graph));
    WANT(INVALID_VALUE, cuStreamBeginCapture_v2(origin, 3));
}

/* The expected results of another thread's calls while this thread captures. */
static struct { int own_mode, expected; int joins_end; } wanted;
static void *beside(void *unused) {
    (void)unused;
    CUdeviceptr memory;
    CUgraph graph;
    int mode = wanted.own_mode;
    DO(cuCtxSetCurrent(context));
    DO(cuThreadExchangeStreamCaptureMode(&mode));
    SHOW(mode == GLOBAL);
    WANT(wanted.expected, cuEventQuery(old));
    WANT(wanted.expected, cuMemAlloc_v2(&memory, 64));
    /* Work on a stream outside the capture is accepted in every mode. */
    fill_on(free_stream, &y, 4);
    if (wanted.joins_end) WANT(CAPTURE_WRONG_THREAD, cuStreamEndCapture(origin, &graph));
    return NULL;
}

static void threads(void) {
    for (int mode = GLOBAL; mode <= RELAXED; mode++)
        for (int own = GLOBAL; own <= RELAXED; own++) {
            pthread_t thread;
            CUgraph graph;
            int is_void = mode == GLOBAL && own == GLOBAL;
            wanted.own_mode = own;
            wanted.expected = is_void ? CAPTURE_UNSUPPORTED : OK;
            wanted.joins_end = mode != RELAXED;
            DO(cuStreamBeginCapture_v2(origin, mode));
            pthread_create(&thread, NULL, beside, NULL);
            pthread_join(thread, NULL);
            WANT(is_void ? CAPTURE_INVALIDATED : OK, cuStreamEndCapture(origin, &graph));
        }
}

/* Memory that a capture allocates belongs to the graph. If the capture is invalidated, it is
 * freed. */
static void memory(void) {
    CUdeviceptr taken;
    CUgraph graph;
    CUgraphExec exec;
    size_t before, after, total;
    float eight = 8;
    DO(cuMemGetInfo_v2(&before, &total));
    DO(cuStreamBeginCapture_v2(origin, GLOBAL));
    DO(cuMemAllocAsync(&taken, N * 4, origin));
    DO(cuLaunchKernel(fill, 4, 1, 1, 256, 1, 1, 0, origin, (void *[]){&taken, &eight, &n}, NULL));
    DO(cuMemcpyDtoDAsync_v2(x, taken, N * 4, origin));
    DO(cuMemFreeAsync(taken, origin));
    DO(cuStreamEndCapture(origin, &graph));
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 3; i++) DO(cuGraphLaunch(exec, origin));
    expect(x, 8);
    DO(cuGraphExecDestroy(exec));
    DO(cuGraphDestroy(graph));
    DO(cuStreamBeginCapture_v2(origin, GLOBAL));
    DO(cuMemAllocAsync(&taken, N * 4, origin));
    WANT(CAPTURE_UNSUPPORTED, cuStreamSynchronize(origin));
    WANT(CAPTURE_INVALIDATED, cuMemAllocAsync(&taken, N * 4, origin));
    WANT(CAPTURE_INVALIDATED, cuStreamEndCapture(origin, &graph));
    DO(cuMemGetInfo_v2(&after, &total));
    SHOW(before == after);
}

/* Captures into an existing graph, and with dependencies set by hand. */
static void by_hand(void) {
    CUgraph graph, same;
    CUgraphNode first, nodes[8];
    size_t count = 8;
    DO(cuGraphCreate(&graph, 0));
    DO(cuGraphAddEmptyNode(&first, graph, NULL, 0));
    DO(cuStreamBeginCaptureToGraph(origin, graph, &first, NULL, 1, RELAXED));
    fill_on(origin, &x, 1);
    DO(cuStreamUpdateCaptureDependencies(origin, &first, 1, 1));
    fill_on(origin, &y, 1);
    DO(cuStreamEndCapture(origin, &same));
    SHOW(same == graph);
    DO(cuGraphNodeGetDependentNodes(first, nodes, &count));
    SHOW(count == 2);
    DO(cuGraphDestroy(graph));
    /* The destruction of a stream ends its capture. */
    CUstream stream;
    DO(cuStreamCreate(&stream, 1));
    DO(cuStreamBeginCapture_v2(stream, GLOBAL));
    DO(cuStreamDestroy_v2(stream));
    DO(cuEventQuery(old));
}

int main(void) {
    context = start();
    fill = function("fill"), add = function("add");
    DO(cuMemAlloc_v2(&x, N * 4));
    DO(cuMemAlloc_v2(&y, N * 4));
    DO(cuStreamCreate(&origin, 0));
    DO(cuStreamCreate(&other, 0));
    DO(cuStreamCreate(&free_stream, 1));
    DO(cuEventCreate(&fork_event, 0));
    DO(cuEventCreate(&join_event, 2));
    DO(cuEventCreate(&old, 0));
    DO(cuEventRecord(old, origin));
    DO(cuCtxSynchronize());
    for (int mode = GLOBAL; mode <= RELAXED; mode++) fork_and_join(mode);
    refusals();
    threads();
    memory();
    by_hand();
    return 0;
}
