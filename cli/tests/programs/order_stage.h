/* The stage of `order.c`: lanes, threads that submit, flags in memory, vectors, and a watchdog.
 *
 * A *lane* is a stream and the thread that submits to it. A *flag* is a word that streams wait for
 * and write: even flags are in pinned host memory, odd ones in device memory. `v(i)` is a vector
 * whose values show the order in which kernels ran. */
#ifndef ORDER_STAGE_H
#define ORDER_STAGE_H

#include <errno.h>
#include <time.h>

#include "graph_min.h"

typedef struct {
    unsigned operation;
    CUdeviceptr address;
    uint64_t value;
    unsigned flags;
    uint64_t rest[2];
} BatchOperation;

CUresult cuMemHostAlloc(void **, size_t, unsigned);
CUresult cuMemFreeHost(void *);
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *, void *, unsigned);
CUresult cuMemsetD32Async(CUdeviceptr, unsigned, size_t, CUstream);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, CUstream);
CUresult cuMemcpyDtoHAsync_v2(void *, CUdeviceptr, size_t, CUstream);
CUresult cuStreamCreateWithPriority(CUstream *, unsigned, int);
CUresult cuStreamQuery(CUstream);
CUresult cuEventQuery(CUevent);
CUresult cuEventDestroy_v2(CUevent);
CUresult cuGraphGetNodes(CUgraph, CUgraphNode *, size_t *);
CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, uint32_t, unsigned);
CUresult cuStreamWaitValue64_v2(CUstream, CUdeviceptr, uint64_t, unsigned);
CUresult cuStreamWriteValue32_v2(CUstream, CUdeviceptr, uint32_t, unsigned);
CUresult cuStreamWriteValue64_v2(CUstream, CUdeviceptr, uint64_t, unsigned);
CUresult cuStreamBatchMemOp_v2(CUstream, unsigned, BatchOperation *, unsigned);

#define LEGACY ((CUstream)1)
#define PER_THREAD ((CUstream)2)
#define NOT_READY 600
enum { BLOCKING, NON_BLOCKING };

/* Default number of a context's connections (CUDA_DEVICE_MAX_CONNECTIONS). So many streams, the
 * legacy stream among them, have a connection of their own. */
#define CONNECTIONS 8
#define LANES_MAX 9
#define THREADS_MAX 9
#define FLAGS 16
#define WIDTH 32
#define VECTORS (LANES_MAX + 3)
#define HUNG 93

typedef void task(long, long);

/* A thread that runs tasks. Number 0 is the first thread of the process, which runs its tasks
 * itself. */
struct worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    task *task;
    long arguments[2];
    int is_over;
};

struct lane { CUstream stream; int is_created; };

static struct {
    CUcontext context;
    CUmodule module;
    CUfunction add, fill, saxpy, pause;
    int lanes, threads, has_legacy;
    struct lane lane[LANES_MAX];
    struct worker worker[THREADS_MAX];
    CUdeviceptr vectors, ones, device_flags, pinned_device;
    _Atomic uint64_t *pinned_flags;
    float *read_back;
    CUgraphExec graph;
} stage;

/* The current round, for the watchdog, and the number of rounds that have started. */
static char place[160];
static atomic_ulong progress;
static int patience_s = 30;

static void *watch(void *unused) {
    unsigned long seen = 0;
    (void)unused;
    for (int silent_s = 0; silent_s < patience_s; silent_s++) {
        struct timespec second = {.tv_sec = 1};
        nanosleep(&second, NULL);
        unsigned long now = atomic_load(&progress);
        if (now != seen) silent_s = -1;
        seen = now;
    }
    printf("hung: %s\n", place);
    fflush(stdout);
    _exit(HUNG);
    return unused;
}

static void wait_ms(int ms) {
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) && errno == EINTR) {}
}

/* Submits nothing for 3 ms in the middle of a shape, so that Pillion's polls of streams meet this
 * state. */
static void let_look(void) { wait_ms(3); }

static void *work_off(void *argument) {
    struct worker *worker = argument;
    CHECK(cu.CtxSetCurrent(stage.context));
    pthread_mutex_lock(&worker->lock);
    while (1) {
        while (!worker->task && !worker->is_over) pthread_cond_wait(&worker->changed, &worker->lock);
        if (!worker->task) break;
        pthread_mutex_unlock(&worker->lock);
        worker->task(worker->arguments[0], worker->arguments[1]);
        pthread_mutex_lock(&worker->lock);
        worker->task = NULL;
        pthread_cond_broadcast(&worker->changed);
    }
    pthread_mutex_unlock(&worker->lock);
    return NULL;
}

/* Starts a task in a thread. */
static void begin_on(int thread, task *what, long first, long second) {
    struct worker *worker = &stage.worker[thread];
    if (thread == 0) {
        what(first, second);
        return;
    }
    pthread_mutex_lock(&worker->lock);
    worker->task = what;
    worker->arguments[0] = first;
    worker->arguments[1] = second;
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->lock);
}

/* Waits until the thread's task is done. */
static void end_on(int thread) {
    struct worker *worker = &stage.worker[thread];
    if (thread == 0) return;
    pthread_mutex_lock(&worker->lock);
    while (worker->task) pthread_cond_wait(&worker->changed, &worker->lock);
    pthread_mutex_unlock(&worker->lock);
}

static void on(int thread, task *what, long first, long second) {
    begin_on(thread, what, first, second);
    end_on(thread);
}

static int thread_of(int lane) { return lane % stage.threads; }

/* Runs a task in the thread of a lane. */
static void at(int lane, task *what, long argument) { on(thread_of(lane), what, lane, argument); }

static CUdeviceptr v(long index) { return stage.vectors + (CUdeviceptr)index * WIDTH * sizeof(float); }

static CUdeviceptr flag_at(long flag) {
    return (flag % 2 ? stage.device_flags : stage.pinned_device) + (CUdeviceptr)flag * sizeof(uint64_t);
}

/* The functions below act on a stream from the calling thread. */

static void add_on(CUstream stream, long to, long from) {
    CUdeviceptr c = v(to), a = v(from);
    unsigned n = WIDTH;
    void *parameters[] = {&a, &stage.ones, &c, &n};
    launch(stage.add, 1, stream, parameters);
}

static void fill_on(CUstream stream, long to, float value) {
    CUdeviceptr x = v(to);
    unsigned n = WIDTH;
    void *parameters[] = {&x, &value, &n};
    launch(stage.fill, 1, stream, parameters);
}

/* Launches a kernel that runs for 500 us and computes nothing. */
static void pause_on(CUstream stream) { launch(stage.pause, 1, stream, NULL); }

static void wait_on(CUstream stream, long flag) {
    BatchOperation both[2] = {{.operation = 1, .address = flag_at(flag), .value = 1}, {.operation = 6}};
    if (flag % 3 == 0) CHECK(cuStreamWaitValue32_v2(stream, flag_at(flag), 1, 0));
    if (flag % 3 == 1) CHECK(cuStreamWaitValue64_v2(stream, flag_at(flag), 1, 0));
    if (flag % 3 == 2) CHECK(cuStreamBatchMemOp_v2(stream, 2, both, 0));
}

static void write_on(CUstream stream, long flag) {
    if (flag % 3 == 0) CHECK(cuStreamWriteValue32_v2(stream, flag_at(flag), 1, 0));
    else CHECK(cuStreamWriteValue64_v2(stream, flag_at(flag), 1, 0));
}

/* The functions below act in the thread of a lane. */

static CUstream stream_of(long lane) { return stage.lane[lane].stream; }
static void lane_add_(long lane, long from) { add_on(stream_of(lane), lane, from); }
static void lane_fill_(long lane, long value) { fill_on(stream_of(lane), lane, (float)value); }
static void lane_pause_(long lane, long unused) { (void)unused, pause_on(stream_of(lane)); }
static void lane_wait_(long lane, long flag) { wait_on(stream_of(lane), flag); }
static void lane_write_(long lane, long flag) { write_on(stream_of(lane), flag); }
static void lane_record_(long lane, long event) { CHECK(cuEventRecord((CUevent)event, stream_of(lane))); }
static void lane_await_(long lane, long event) { CHECK(cuStreamWaitEvent(stream_of(lane), (CUevent)event, 0)); }
static void lane_graph_(long lane, long exec) { CHECK(cuGraphLaunch((CUgraphExec)exec, stream_of(lane))); }
static void lane_sync_(long lane, long unused) { (void)unused; CHECK(cu.StreamSynchronize(stream_of(lane))); }

static void lane_many_(long lane, long count) {
    while (count--) add_on(stream_of(lane), lane, lane);
}

static void lane_add(int lane, long from) { at(lane, lane_add_, from); }
static void lane_fill(int lane, long value) { at(lane, lane_fill_, value); }
static void lane_pause(int lane) { at(lane, lane_pause_, 0); }
static void lane_wait(int lane, long flag) { at(lane, lane_wait_, flag); }
static void lane_write(int lane, long flag) { at(lane, lane_write_, flag); }
static void lane_record(int lane, CUevent event) { at(lane, lane_record_, (long)event); }
static void lane_await(int lane, CUevent event) { at(lane, lane_await_, (long)event); }
static void lane_graph(int lane, CUgraphExec exec) { at(lane, lane_graph_, (long)exec); }
static void lane_many(int lane, long count) { at(lane, lane_many_, count); }
static void lane_sync(int lane) { at(lane, lane_sync_, 0); }

static void host_write(long flag) { atomic_store(&stage.pinned_flags[flag], 1); }

/* The lane that others wait for: the farthest from the first one that still has its own
 * connection. */
static int last_lane(void) { return (stage.lanes < CONNECTIONS ? stage.lanes : CONNECTIONS) - 1; }

/* Writes the awaited value from another lane, or from the host if there is none. */
static void write_late(long flag) {
    let_look();
    if (last_lane() == 0) host_write(flag);
    else lane_write(last_lane(), flag);
}

static CUevent new_event(void) {
    CUevent event;
    CHECK(cuEventCreate(&event, 2));
    return event;
}

/* Starts a round: all memory is zero, nothing is in flight. */
static void reset(void) {
    for (int i = 0; i < FLAGS; i++) atomic_store(&stage.pinned_flags[i], 0);
    CUstream stream = stream_of(0);
    CHECK(cuMemsetD32Async(stage.vectors, 0, VECTORS * WIDTH, stream));
    CHECK(cuMemsetD32Async(stage.device_flags, 0, FLAGS * 2, stream));
    CHECK(cu.StreamSynchronize(stream));
}

/* Ends a round: returns a sum of all its results. */
static unsigned long sum_up(void) {
    for (int i = 0; i < stage.lanes; i++) lane_sync(i);
    if (stage.has_legacy) CHECK(cu.StreamSynchronize(LEGACY));
    CUstream stream = stream_of(0);
    CHECK(cuMemcpyDtoHAsync_v2(stage.read_back, stage.vectors, VECTORS * WIDTH * sizeof(float), stream));
    CHECK(cu.StreamSynchronize(stream));
    unsigned long sum = 0;
    for (int i = 0; i < VECTORS * WIDTH; i++) sum = sum * 31 + (unsigned long)stage.read_back[i];
    for (int i = 0; i < FLAGS; i += 2) sum = sum * 31 + atomic_load(&stage.pinned_flags[i]);
    return sum;
}

static void *pinned(size_t bytes) {
    void *memory;
    CHECK(cuMemHostAlloc(&memory, bytes, 1));
    memset(memory, 0, bytes);
    return memory;
}

static void open_stage(int lanes, int threads) {
    float ones[WIDTH];
    stage.lanes = lanes;
    stage.threads = threads;
    CHECK(cu.CtxCreate(&stage.context, 0, 0));
    CHECK(cu.ModuleLoadData(&stage.module, "softgpu-module 1\n"
                                           "kernel pause block_ns=500000 regs=32 shared=0 compute=0.01 bandwidth=0.01\n"));
    CHECK(cu.ModuleGetFunction(&stage.add, stage.module, "add"));
    CHECK(cu.ModuleGetFunction(&stage.fill, stage.module, "fill"));
    CHECK(cu.ModuleGetFunction(&stage.saxpy, stage.module, "saxpy"));
    CHECK(cu.ModuleGetFunction(&stage.pause, stage.module, "pause"));
    CHECK(cu.MemAlloc(&stage.vectors, VECTORS * WIDTH * sizeof(float)));
    CHECK(cu.MemAlloc(&stage.ones, sizeof ones));
    CHECK(cu.MemAlloc(&stage.device_flags, FLAGS * sizeof(uint64_t)));
    for (int i = 0; i < WIDTH; i++) ones[i] = 1;
    to_device(stage.ones, ones, sizeof ones);
    stage.pinned_flags = pinned(FLAGS * sizeof(uint64_t));
    CHECK(cuMemHostGetDevicePointer_v2(&stage.pinned_device, (void *)stage.pinned_flags, 0));
    stage.read_back = pinned(VECTORS * WIDTH * sizeof(float));
    for (int i = 1; i < threads; i++) {
        struct worker *worker = &stage.worker[i];
        *worker = (struct worker){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
        if (pthread_create(&worker->thread, NULL, work_off, worker)) exit(3);
    }
}

static void close_stage(void) {
    for (int i = 1; i < stage.threads; i++) {
        struct worker *worker = &stage.worker[i];
        pthread_mutex_lock(&worker->lock);
        worker->is_over = 1;
        pthread_cond_broadcast(&worker->changed);
        pthread_mutex_unlock(&worker->lock);
        pthread_join(worker->thread, NULL);
    }
    CHECK(cuGraphExecDestroy(stage.graph));
    for (int i = 0; i < stage.lanes; i++)
        if (stage.lane[i].is_created) CHECK(cuStreamDestroy_v2(stage.lane[i].stream));
    CHECK(cuMemFreeHost((void *)stage.pinned_flags));
    CHECK(cuMemFreeHost(stage.read_back));
    CHECK(cu.CtxDestroy(stage.context));
}

#endif
