/* green: two green contexts of one device, each with a stream and the default stream.
 *
 *   counts   launches on all of them, with events between, and checks the result
 *   ends     launches ten kernels of 5 ms and destroys the green context while they run, prints
 *            "ended" and stays
 *   steady   rounds of ten launches on a green context's stream, "round" after each, until standard
 *            input ends */
#include "cuda_min.h"

#define NON_BLOCKING 1
#define SM 1
#define INVALID_VALUE 1
#define INVALID_DEVICE 101
#define INVALID_CONTEXT 201
#define INVALID_RESOURCE_TYPE 914
#define INVALID_RESOURCE_CONFIGURATION 915
#define STREAM_DETACHED 917
#define WANT(call, wanted) do { \
        CUresult got_ = (call); \
        if (got_ != (wanted)) { \
            fprintf(stderr, "%s:%d: %s: %u, not %u\n", __FILE__, __LINE__, #call, got_, (unsigned)(wanted)); \
            exit(CUDA_FAILED); \
        } \
    } while (0)
#define EXPECT(holds) do { \
        if (!(holds)) { \
            fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #holds); \
            exit(WRONG_RESULT); \
        } \
    } while (0)

typedef struct { unsigned type; char internal[92]; unsigned sms; char rest[44]; } resource;
typedef void *CUgreenCtx, *CUdevResourceDesc, *CUevent;

CUresult cuDeviceGetDevResource(CUdevice, resource *, unsigned);
CUresult cuCtxGetDevResource(CUcontext, resource *, unsigned);
CUresult cuGreenCtxGetDevResource(CUgreenCtx, resource *, unsigned);
CUresult cuDevSmResourceSplitByCount(resource *, unsigned *, const resource *, resource *, unsigned, unsigned);
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *, resource *, unsigned);
CUresult cuGreenCtxCreate(CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned);
CUresult cuGreenCtxDestroy(CUgreenCtx);
CUresult cuCtxFromGreenCtx(CUcontext *, CUgreenCtx);
CUresult cuGreenCtxStreamCreate(CUstream *, CUgreenCtx, unsigned, int);
CUresult cuStreamGetGreenCtx(CUstream, CUgreenCtx *);
CUresult cuGreenCtxRecordEvent(CUgreenCtx, CUevent);
CUresult cuGreenCtxWaitEvent(CUgreenCtx, CUevent);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuEventCreate(CUevent *, unsigned);
CUresult cuEventSynchronize(CUevent);
CUresult cuStreamDestroy_v2(CUstream);

static CUgreenCtx greens[2];
static CUcontext contexts[2];
static CUstream streams[2];

static void make_greens(void) {
    resource all, parts[2], left, own;
    CUdevResourceDesc descriptions[2];
    unsigned groups = 2, possible = 0;
    WANT(cuDeviceGetDevResource(0, NULL, SM), INVALID_VALUE);
    WANT(cuDeviceGetDevResource(99, &all, SM), INVALID_DEVICE);
    WANT(cuDeviceGetDevResource(0, &all, 0), INVALID_RESOURCE_TYPE);
    CHECK(cuDeviceGetDevResource(0, &all, SM));
    CHECK(cuDevSmResourceSplitByCount(NULL, &possible, &all, NULL, 0, 15));
    EXPECT(possible == all.sms / 16);
    WANT(cuDevSmResourceSplitByCount(parts, &groups, &all, &left, 0, all.sms + 1), INVALID_VALUE);
    WANT(cuDevSmResourceSplitByCount(parts, NULL, &all, &left, 0, 15), INVALID_VALUE);
    CHECK(cuDevSmResourceSplitByCount(parts, &groups, &all, &left, 0, 15));
    EXPECT(groups == 2 && parts[0].sms == 16 && parts[1].sms == 16 && left.sms == all.sms - 32);
    WANT(cuDevSmResourceSplitByCount(NULL, &possible, &parts[0], NULL, 0, 2), INVALID_RESOURCE_CONFIGURATION);
    WANT(cuDevResourceGenerateDesc(&descriptions[0], parts, 0), INVALID_VALUE);
    WANT(cuGreenCtxCreate(&greens[0], NULL, 0, 1), INVALID_VALUE);
    WANT(cuGreenCtxDestroy(NULL), INVALID_CONTEXT);
    for (int i = 0; i < 2; i++) {
        CUgreenCtx of;
        CHECK(cuDevResourceGenerateDesc(&descriptions[i], &parts[i], 1));
        CHECK(cuGreenCtxCreate(&greens[i], descriptions[i], 0, 1));
        CHECK(cuCtxFromGreenCtx(&contexts[i], greens[i]));
        CHECK(cuGreenCtxGetDevResource(greens[i], &own, SM));
        EXPECT(own.sms == 16);
        CHECK(cuCtxGetDevResource(contexts[i], &own, SM));
        EXPECT(own.sms == 16);
        WANT(cuGreenCtxStreamCreate(&streams[i], greens[i], 0, 0), INVALID_VALUE);
        CHECK(cuGreenCtxStreamCreate(&streams[i], greens[i], NON_BLOCKING, 0));
        CHECK(cuStreamGetGreenCtx(streams[i], &of));
        EXPECT(of == greens[i]);
        WANT(cu.CtxDestroy(contexts[i]), INVALID_CONTEXT);
    }
}

/* Like work_open, in the primary context. */
static void open_in_primary(struct work *work) {
    CHECK(cuDevicePrimaryCtxRetain(&work->context, 0));
    CHECK(cu.CtxSetCurrent(work->context));
    work_fill(work, PLAIN_IMAGE "kernel hang block_ns=5000000 regs=32 shared=0 compute=0.01 bandwidth=0.01\n");
}

static void counts(struct work *work) {
    CUevent event;
    CHECK(cuEventCreate(&event, 2));
    for (int round = 0; round < 20; round++)
        for (int i = 0; i < 2; i++) {
            CHECK(cu.CtxSetCurrent(contexts[i]));
            work_launch(work, streams[i]);
            /* saxpy reads and writes, so the launches of other streams wait. */
            CHECK(cuGreenCtxRecordEvent(greens[i], event));
            CHECK(cuEventSynchronize(event));
            work_launch(work, NULL);
            CHECK(cuGreenCtxRecordEvent(greens[i], event));
            CHECK(cuGreenCtxWaitEvent(greens[1 - i], event));
        }
    for (int i = 0; i < 2; i++) {
        CHECK(cu.StreamSynchronize(streams[i]));
        CHECK(cuGreenCtxDestroy(greens[i]));
        WANT(cuGreenCtxDestroy(greens[i]), INVALID_CONTEXT);
        CHECK(cu.CtxSetCurrent(work->context));
        WANT(cu.StreamSynchronize(streams[i]), STREAM_DETACHED);
        CHECK(cuStreamDestroy_v2(streams[i]));
    }
    work_check(work);
}

int main(int argc, char **argv) {
    static struct work work;
    CUfunction slow;
    if (argc != 2) return 2;
    open_door("linked");
    CHECK(cu.Init(0));
    open_in_primary(&work);
    CHECK(cu.ModuleGetFunction(&slow, work.module, "hang"));
    make_greens();
    if (strcmp(argv[1], "counts") == 0) {
        counts(&work);
    } else if (strcmp(argv[1], "ends") == 0) {
        for (int i = 0; i < 10; i++) launch(slow, 1, streams[i % 2], NULL);
        for (int i = 0; i < 2; i++) CHECK(cuGreenCtxDestroy(greens[i]));
        say("ended");
        wait_until_told_to_end();
    } else {
        do {
            for (int i = 0; i < 10; i++) work_launch(&work, streams[0]);
            CHECK(cu.StreamSynchronize(streams[0]));
            say("round");
        } while (!is_told_to_end());
        work_check(&work);
    }
    say_asked();
    return 0;
}
