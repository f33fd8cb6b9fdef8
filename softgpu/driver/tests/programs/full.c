/* A submit to a full stream blocks. Until there is room, calls of other threads in the context
 * wait, and calls in other contexts do not. */
#include "cuda_min.h"
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, uint32_t, unsigned);
CUresult cuStreamWriteValue32_v2(CUstream, CUdeviceptr, uint32_t, unsigned);
CUresult cuLaunchHostFunc(CUstream, void (*)(void *), void *);

enum { DEPTH = 1024, SUBMITS = DEPTH + 200, CALLERS = 6 };

static CUcontext context;
static CUstream full, other;
static CUevent event, recorded, never;
static CUfunction shorter;
static volatile uint32_t *gate;
static atomic_int submitted, called, returned;

static void nothing(void *unused) { (void)unused; }

/* Threads must not end: the virtual clock would wait for their next call. */
static void stay(void) { DO(cuEventSynchronize(never)); }

static void *fill(void *unused) {
    (void)unused;
    DO(cuCtxSetCurrent(context));
    for (int i = 0; i < SUBMITS; i++) {
        switch (i % 6) {
        case 0: run(shorter, 1, full, NULL); break;
        case 1: DO(cuEventRecord(event, full)); break;
        case 2: DO(cuStreamWaitEvent(full, event, 0)); break;
        case 3: DO(cuStreamWriteValue32_v2(full, (CUdeviceptr)(gate + 4), 1, 0)); break;
        case 4: DO(cuStreamWaitValue32_v2(full, (CUdeviceptr)(gate + 4), 1, 0)); break;
        case 5: DO(cuLaunchHostFunc(full, nothing, NULL)); break;
        }
        submitted++;
    }
    stay();
    return NULL;
}

static void *call(void *which) {
    CUstream made;
    DO(cuCtxSetCurrent(context));
    called++;
    switch ((intptr_t)which) {
    case 0: run(shorter, 1, other, NULL); break;
    case 1: DO(cuEventQuery(recorded)); break;
    case 2: cuStreamQuery(other); break;
    case 3: DO(cuStreamSynchronize(other)); break;
    case 4: DO(cuEventSynchronize(recorded)); break;
    case 5: DO(cuStreamCreate(&made, 1)); break;
    }
    returned++;
    stay();
    return NULL;
}

int main(void) {
    pthread_t thread;
    CUcontext beside;
    CUevent free_event;
    /* Ends the test instead of a hang. */
    alarm(100);
    context = start();
    shorter = function("short");
    DO(cuStreamCreate(&full, 1));
    DO(cuStreamCreate(&other, 1));
    DO(cuEventCreate(&event, 2));
    DO(cuEventCreate(&recorded, 2));
    DO(cuEventRecord(recorded, other));
    DO(cuEventSynchronize(recorded));
    DO(cuMemHostAlloc((void **)&gate, 64, 0));
    gate[0] = gate[4] = 0;
    DO(cuStreamWaitValue32_v2(full, (CUdeviceptr)gate, 1, 0));
    DO(cuCtxCreate_v2(&beside, 0, 0));
    DO(cuEventCreate(&free_event, 2));
    DO(cuEventRecord(free_event, NULL));
    DO(cuEventSynchronize(free_event));
    DO(cuEventCreate(&never, 2));
    DO(cuStreamWaitValue32_v2(NULL, (CUdeviceptr)gate, 2, 0));
    DO(cuEventRecord(never, NULL));
    pthread_create(&thread, NULL, fill, NULL);
    /* The wait for the gate is one of the stream's commands. */
    while (submitted < DEPTH - 1) DO(cuEventQuery(free_event));
    /* The filler gets this long to take the context's lock. */
    for (int i = 0; i < 20000; i++) DO(cuEventQuery(free_event));
    for (intptr_t i = 0; i < CALLERS; i++) pthread_create(&thread, NULL, call, (void *)i);
    while (called < CALLERS) DO(cuEventQuery(free_event));
    for (int i = 0; i < 20000; i++) DO(cuEventQuery(free_event));
    SHOW(submitted == DEPTH - 1);
    SHOW(returned == 0);
    *gate = 1;
    while (submitted < SUBMITS || returned < CALLERS) DO(cuEventQuery(free_event));
    DO(cuCtxSetCurrent(context));
    DO(cuCtxSynchronize());
    return 0;
}
