/* Waits and writes of values in streams, attributes of streams, events of contexts, and the other
 * forms of contexts. */
#include "cuda_min.h"
#include <pthread.h>
#include <unistd.h>

enum { GEQ = 0, EQ = 1, AND = 2, NOR = 3 };
typedef struct { unsigned operation, flags_of_barrier; CUdeviceptr address; uint64_t value; unsigned flags, pad; uint64_t rest[2]; } Operation;
typedef struct { union { int number; char bytes[64]; uint64_t align; }; } Value;

CUresult cuStreamWaitValue32(CUstream, CUdeviceptr, uint32_t, unsigned);
CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, uint32_t, unsigned);
CUresult cuStreamWaitValue64_v2_ptsz(CUstream, CUdeviceptr, uint64_t, unsigned);
CUresult cuStreamWriteValue32_v2(CUstream, CUdeviceptr, uint32_t, unsigned);
CUresult cuStreamWriteValue64_v2(CUstream, CUdeviceptr, uint64_t, unsigned);
CUresult cuStreamBatchMemOp_v2(CUstream, unsigned, Operation *, unsigned);
CUresult cuStreamSynchronize_ptsz(CUstream);
CUresult cuStreamGetId(CUstream, uint64_t *);
CUresult cuStreamGetDevice(CUstream, CUdevice *);
CUresult cuStreamGetCtx_v2(CUstream, CUcontext *, void **);
CUresult cuStreamSetAttribute(CUstream, int, const Value *);
CUresult cuStreamGetAttribute(CUstream, int, Value *);
CUresult cuStreamCopyAttributes(CUstream, CUstream);
CUresult cuCtxRecordEvent(CUcontext, CUevent);
CUresult cuCtxWaitEvent(CUcontext, CUevent);
CUresult cuCtxAttach(CUcontext *, unsigned);
CUresult cuCtxDetach(CUcontext);
CUresult cuCtxGetId(CUcontext, uint64_t *);
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned);
CUresult cuCtxDisablePeerAccess(CUcontext);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice);

static volatile uint32_t *word;

static void *write_later(void *unused) {
    (void)unused;
    usleep(20000);
    *word = 5;
    return NULL;
}

static void values(CUstream a, CUstream b, CUdeviceptr memory) {
    DO(cuMemHostAlloc((void **)&word, 64, 0));
    *word = 4;
    CUdeviceptr at = (CUdeviceptr)word;
    /* A stream waits until the host writes the value; other streams do not wait. */
    DO(cuStreamWaitValue32(a, at, 5, GEQ));
    DO(cuStreamWriteValue32_v2(a, memory, 77, 0));
    DO(cuStreamSynchronize(b));
    for (int i = 0; i < 100; i++) WANT(NOT_READY, cuStreamQuery(a));
    pthread_t thread;
    pthread_create(&thread, NULL, write_later, NULL);
    DO(cuStreamSynchronize(a));
    pthread_join(thread, NULL);
    uint32_t got[2];
    DO(cuMemcpyDtoH_v2(got, memory, 4));
    SHOW(got[0] == 77);
    /* One stream waits for another's write. */
    DO(cuStreamWaitValue64_v2_ptsz(b, memory + 8, 1ull << 40 | 3, EQ));
    WANT(NOT_READY, cuStreamQuery(b));
    DO(cuStreamWriteValue64_v2(a, memory + 8, 1ull << 40 | 3, 1));
    DO(cuStreamSynchronize(b));
    /* A wait reads the value only at its turn. */
    *word = 1;
    DO(cuStreamWaitValue32_v2(a, memory, 78, EQ));
    DO(cuStreamWaitValue32_v2(a, at, 1, EQ));
    *word = 2;
    DO(cuStreamWriteValue32_v2(b, memory, 78, 0));
    usleep(5000);
    WANT(NOT_READY, cuStreamQuery(a));
    *word = 1;
    DO(cuStreamSynchronize(a));
    /* A batch is accepted as a whole or not at all. */
    Operation batch[3] = {{2, 0, memory, 80, 0, 0, {0}}, {6, 0, 0, 0, 0, 0, {0}}, {5, 0, memory + 8, 81, 0, 0, {0}}};
    DO(cuStreamBatchMemOp_v2(a, 3, batch, 0));
    DO(cuStreamSynchronize(a));
    DO(cuMemcpyDtoH_v2(got, memory, 8));
    SHOW(got[0] == 80);
    batch[0].value = 90;
    batch[2].address++;
    WANT(INVALID_VALUE, cuStreamBatchMemOp_v2(a, 3, batch, 0));
    WANT(INVALID_VALUE, cuStreamBatchMemOp_v2(a, 257, batch, 0));
    WANT(INVALID_VALUE, cuStreamBatchMemOp_v2(a, 1, NULL, 0));
    WANT(INVALID_VALUE, cuStreamBatchMemOp_v2(a, 1, batch, 1));
    DO(cuMemcpyDtoH_v2(got, memory, 4));
    SHOW(got[0] == 80);
    WANT(INVALID_VALUE, cuStreamWaitValue32_v2(a, memory + 2, 0, EQ));
    WANT(INVALID_VALUE, cuStreamWaitValue32_v2(a, memory, 0, 9));
    WANT(NOT_SUPPORTED, cuStreamWaitValue32_v2(a, memory, 0, EQ | 1 << 30));
    WANT(INVALID_VALUE, cuStreamWriteValue32_v2(a, (CUdeviceptr)&batch, 0, 0));
    WANT(INVALID_VALUE, cuStreamWriteValue32_v2(a, memory, 0, 4));
    WANT(INVALID_HANDLE, cuStreamWriteValue32_v2((CUstream)0x77, memory, 0, 0));
}

static void attributes(CUcontext context, CUstream a, CUstream b) {
    Value value = {{-3}}, got = {{0}};
    int priority;
    uint64_t id[2];
    CUdevice device = 7;
    CUcontext owner;
    void *green = &green;
    DO(cuStreamSetAttribute(a, 8, &value));
    DO(cuStreamGetPriority(a, &priority));
    SHOW(priority == -3);
    DO(cuStreamCopyAttributes(b, a));
    DO(cuStreamGetAttribute(b, 8, &got));
    SHOW(got.number == -3);
    value.number = -6;
    WANT(INVALID_VALUE, cuStreamSetAttribute(a, 8, &value));
    WANT(INVALID_VALUE, cuStreamSetAttribute(NULL, 8, &value));
    WANT(INVALID_VALUE, cuStreamSetAttribute(a, 8, NULL));
    WANT(INVALID_VALUE, cuStreamGetAttribute(a, 99, &got));
    DO(cuStreamGetId(a, &id[0]));
    DO(cuStreamGetId(b, &id[1]));
    SHOW(id[0] != id[1]);
    DO(cuStreamGetDevice(a, &device));
    SHOW(device == 0);
    DO(cuStreamGetCtx_v2(a, &owner, &green));
    SHOW(owner == context && green == NULL);
}

static void contexts(CUstream a, CUdeviceptr memory) {
    CUcontext context, again;
    CUevent event;
    uint64_t id;
    DO(cuCtxGetCurrent(&context));
    DO(cuEventCreate(&event, 2));
    *word = 0;
    DO(cuStreamWaitValue32_v2(a, (CUdeviceptr)word, 1, EQ));
    DO(cuCtxRecordEvent(context, event));
    WANT(NOT_READY, cuEventQuery(event));
    *word = 1;
    DO(cuEventSynchronize(event));
    DO(cuCtxWaitEvent(NULL, event));
    DO(cuStreamWriteValue32_v2(a, memory, 5, 0));
    DO(cuCtxSynchronize());
    DO(cuEventDestroy_v2(event));
    DO(cuCtxGetId(NULL, &id));
    WANT(101, cuCtxEnablePeerAccess(context, 0));
    WANT(705, cuCtxDisablePeerAccess(context));
    WANT(INVALID_VALUE, cuCtxAttach(&again, 1));
    DO(cuCtxAttach(&again, 0));
    SHOW(again == context);
    DO(cuCtxDetach(context));
    DO(cuCtxSynchronize());
    DO(cuCtxDetach(context));
    WANT(INVALID_CONTEXT, cuCtxDetach(context));
    /* A reset ends the primary context, no matter how often it is retained. */
    DO(cuDevicePrimaryCtxRetain(&context, 0));
    DO(cuDevicePrimaryCtxRetain(&again, 0));
    SHOW(context == again);
    DO(cuDevicePrimaryCtxReset_v2(0));
    int active;
    unsigned flags;
    DO(cuDevicePrimaryCtxGetState(0, &flags, &active));
    SHOW(active == 0);
    WANT(INVALID_CONTEXT, cuCtxSetCurrent(context));
    DO(cuDevicePrimaryCtxRetain(&context, 0));
    DO(cuDevicePrimaryCtxRelease_v2(0));
}

int main(void) {
    CUcontext context;
    CUstream a, b;
    CUdeviceptr memory;
    DO(cuInit(0));
    DO(cuCtxCreate_v2(&context, 0, 0));
    DO(cuStreamCreate(&a, 1));
    DO(cuStreamCreate(&b, 1));
    DO(cuMemAlloc_v2(&memory, 512));
    DO(cuMemsetD8_v2(memory, 0, 512));
    DO(cuCtxSynchronize());
    values(a, b, memory);
    attributes(context, a, b);
    contexts(a, memory);
    return 0;
}
