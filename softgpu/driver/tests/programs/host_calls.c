/* Functions that the driver calls in stream order. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <unistd.h>
#include "graph_min.h"

#define CALLS 50

static atomic_int order, ended, refused, released;
static int seen[CALLS];
static float *pinned;

static void number(void *data) { seen[(size_t)data] = atomic_fetch_add(&order, 1); }

/* The same, once the program permits it: until then the stream stops, however long this process
 * gets no processor. */
static atomic_int is_let;
static void number_when_let(void *data) {
    while (atomic_load(&is_let) == 0) usleep(100);
    number(data);
}

static void slow(void *data) {
    float *at = data;
    usleep(20000);
    /* The copy before this call is complete; the copy after it has not begun. */
    if (*at == 1) *at = 5;
}

/* Calls of CUDA are refused here. */
static void use_cuda(void *data) {
    CUdeviceptr memory;
    (void)data;
    if (cuMemAlloc_v2(&memory, 64) == NOT_PERMITTED && cuCtxSynchronize() == NOT_PERMITTED) atomic_fetch_add(&refused, 1);
}

static CUstream told;
static void callback(CUstream stream, CUresult status, void *data) {
    if (stream == told && status == OK) atomic_fetch_add((atomic_int *)data, 1);
}

static void release(void *data) { atomic_fetch_add((atomic_int *)data, 1); }

int main(void) {
    start();
    CUfunction longer = function("long"), fill = function("fill");
    CUstream a, b;
    CUevent event;
    CUdeviceptr x;
    unsigned n = 16;
    float one = 1, back[16];
    DO(cuStreamCreate(&a, 1));
    DO(cuStreamCreate(&b, 1));
    DO(cuEventCreate(&event, 0));
    DO(cuMemAlloc_v2(&x, n * 4));
    DO(cuMemHostAlloc((void **)&pinned, n * 4, 0));
    WANT(INVALID_VALUE, cuLaunchHostFunc(a, NULL, NULL));

    for (size_t i = 0; i < CALLS; i++) {
        run(longer, 1, a, NULL);
        DO(cuLaunchHostFunc(a, i == 0 ? number_when_let : number, (void *)i));
    }
    WANT(NOT_READY, cuStreamQuery(a));
    atomic_store(&is_let, 1);
    DO(cuStreamSynchronize(a));
    for (int i = 0; i < CALLS; i++) SHOW(seen[i] == i);

    /* Later work waits for the function. */
    run(fill, 1, a, (void *[]){&x, &one, &n});
    DO(cuMemcpyDtoHAsync_v2(pinned, x, 4, a));
    DO(cuLaunchHostFunc(a, slow, pinned));
    DO(cuMemcpyHtoDAsync_v2(x, pinned, 4, a));
    DO(cuMemcpyDtoHAsync_v2(back, x, 4, a));
    SHOW(back[0] == 5);

    /* A stream waits for another stream's function. */
    DO(cuLaunchHostFunc(b, number, (void *)0));
    DO(cuEventRecord(event, b));
    DO(cuStreamWaitEvent(a, event, 0));
    DO(cuLaunchHostFunc(a, number, (void *)1));
    DO(cuStreamSynchronize(a));
    SHOW(seen[1] == seen[0] + 1);

    DO(cuLaunchHostFunc(a, use_cuda, NULL));
    told = a;
    WANT(INVALID_VALUE, cuStreamAddCallback(a, callback, &ended, 1));
    DO(cuStreamAddCallback(a, callback, &ended, 0));
    DO(cuStreamSynchronize(a));
    SHOW(atomic_load(&refused) == 1 && atomic_load(&ended) == 1);

    /* A user object ends with its last reference, here a graph's. */
    CUgraph graph;
    CUuserObject object;
    DO(cuGraphCreate(&graph, 0));
    WANT(INVALID_VALUE, cuUserObjectCreate(&object, &released, release, 1, 0));
    DO(cuUserObjectCreate(&object, &released, release, 1, 1));
    DO(cuGraphRetainUserObject(graph, object, 1, 0));
    DO(cuUserObjectRelease(object, 1));
    SHOW(atomic_load(&released) == 0);
    DO(cuGraphDestroy(graph));
    /* The driver's thread calls one function after the other. */
    while (atomic_load(&released) == 0) {
        DO(cuLaunchHostFunc(b, number, (void *)0));
        DO(cuStreamSynchronize(b));
    }
    return 0;
}
