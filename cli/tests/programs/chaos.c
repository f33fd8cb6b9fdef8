/* chaos WHAT: works until standard input ends, with every object that a job can have, and checks
 * its results. It exits with 92 after a wrong result, and with 90 after a failed call.
 *
 *   hp    one request after the other with a pause between them: a graph whose first and last node
 *         record events. Prints "request NS at NS": the request's time on the device, which does
 *         not include delays of the host, and when the program saw its end (CLOCK_MONOTONIC)
 *   be    rounds of allocations, launches on two streams, a graph (captured again every eighth
 *         round), and a wait for an event
 *   hold PIECES WHAT  allocates PIECES pieces of 16 MiB, or as many as its quota allows, has a
 *         graph, an open capture and work in flight, prints "holding", and does WHAT until it is
 *         terminated: nothing; launch: one kernel after the other, each of which may have to wait;
 *         storm: many before it waits; memory: allocates and frees, and asks for more than it gets;
 *         capture: graphs, one after the other; copy: both ways */
#include "graph_min.h"

CUresult cuEventRecordWithFlags(CUevent, CUstream, unsigned);
CUresult cuEventElapsedTime(float *, CUevent, CUevent);
CUresult cuEventDestroy_v2(CUevent);

/* A request takes 20 * 100 us, with all SMs busy. A best-effort kernel takes 100 us, and fills the
 * device, too. */
#define IMAGE \
    "softgpu-module 1\nkernel step block_ns=100000 regs=32 shared=0 compute=0.8 bandwidth=0.2\n" \
    "kernel chew block_ns=100000 regs=32 shared=0 compute=0.2 bandwidth=0.8\n" \
    "kernel lasting block_ns=3600000000000 regs=32 shared=0 compute=0.01 bandwidth=0.01\n"
#define STEPS 20
#define BLOCKS 80
#define EXTERNAL 1
#define OUT_OF_MEMORY 2
#define MIB ((size_t)1 << 20)

static CUfunction step, chew, lasting;

static void open_all(struct work *work) {
    open_door("linked");
    work_open(work, IMAGE);
    CHECK(cu.ModuleGetFunction(&step, work->module, "step"));
    CHECK(cu.ModuleGetFunction(&chew, work->module, "chew"));
    CHECK(cu.ModuleGetFunction(&lasting, work->module, "lasting"));
}

/* Captures a graph of `kernels` kernels and one that computes, between two events if `marks` has
 * any. */
static CUgraphExec graph_of(struct work *work, CUstream stream, CUfunction kernel, int kernels, CUevent *marks) {
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuStreamBeginCapture_v2(stream, THREAD_LOCAL));
    if (marks != NULL) CHECK(cuEventRecordWithFlags(marks[0], stream, EXTERNAL));
    for (int i = 0; i < kernels; i++) {
        CHECK(cu.LaunchKernel(kernel, BLOCKS, 1, 1, 256, 1, 1, 0, stream, NULL, NULL));
        atomic_fetch_add(&asked_graphs.captured, 1);
    }
    record_launch(work, stream);
    if (marks != NULL) CHECK(cuEventRecordWithFlags(marks[1], stream, EXTERNAL));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuGraphDestroy(graph));
    return exec;
}

/* Launches a graph, which has one kernel that raises y. */
static void launch_once(struct work *work, CUgraphExec exec, CUstream stream) {
    CHECK(cuGraphLaunch(exec, stream));
    atomic_fetch_add(&asked_graphs.graph_launches, 1);
    atomic_fetch_add(&work->raised, 1);
}

static void serve(struct work *work) {
    CUstream stream;
    CUevent marks[2];
    CHECK(cu.StreamCreate(&stream, 1));
    CHECK(cuEventCreate(&marks[0], 0));
    CHECK(cuEventCreate(&marks[1], 0));
    CUgraphExec exec = graph_of(work, stream, step, STEPS, marks);
    unsigned pause_us = (unsigned)getpid();
    for (int request = 1; !is_told_to_end(); request++) {
        float ms;
        launch_once(work, exec, stream);
        CHECK(cu.StreamSynchronize(stream));
        CHECK(cuEventElapsedTime(&ms, marks[0], marks[1]));
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        printf("request %.0f at %lld\n", (double)ms * 1e6, now.tv_sec * 1000000000LL + now.tv_nsec);
        fflush(stdout);
        if (request % 16 == 0) work_launch(work, stream), work_check(work);
        pause_us = pause_us * 1103515245u + 12345u;
        usleep(4000 + (pause_us >> 16) % 6000);
    }
}

static void train(struct work *work) {
    CUstream a, b;
    CUevent done;
    CUgraphExec exec = NULL;
    CHECK(cu.StreamCreate(&a, 1));
    CHECK(cu.StreamCreate(&b, 1));
    CHECK(cuEventCreate(&done, 2));
    for (int round = 0; !is_told_to_end(); round++) {
        CUdeviceptr taken[3];
        for (int i = 0; i < 3; i++) CHECK(cu.MemAlloc(&taken[i], (size_t)(i + 1) * MIB));
        if (round % 8 == 0) {
            if (exec != NULL) CHECK(cuGraphExecDestroy(exec));
            exec = graph_of(work, a, chew, 3, NULL);
        }
        for (int i = 0; i < 3; i++) launch(chew, BLOCKS, i % 2 ? a : b, NULL), work_launch(work, a);
        launch_once(work, exec, a);
        CHECK(cuEventRecord(done, a));
        CHECK(cuEventSynchronize(done));
        CHECK(cu.StreamSynchronize(b));
        for (int i = 0; i < 3; i++) CHECK(cu.MemFree(taken[i]));
        if (round % 8 == 7) work_check(work);
        say("round");
    }
}

#define COPY_BYTES (4 * MIB)
#define STORM 64

/* The state of a process of the mode `hold`. */
struct busy {
    struct work *work;
    const char *what;
    CUdeviceptr buffer;
};

static void storm(struct work *work, CUstream *streams) {
    for (int i = 0; i < STORM; i++) work_launch(work, streams[i % 2]);
    for (int i = 0; i < 2; i++) CHECK(cu.StreamSynchronize(streams[i]));
}

/* In stream order: a synchronous free would wait for all work. */
static void take_and_give_back(CUstream stream) {
    CUdeviceptr taken[3], none;
    for (int i = 0; i < 3; i++) CHECK(cuMemAllocAsync(&taken[i], 2 * MIB, stream));
    if (cu.MemAlloc(&none, (size_t)1 << 50) != OUT_OF_MEMORY) exit(CUDA_FAILED);
    for (int i = 0; i < 3; i++) CHECK(cuMemFreeAsync(taken[i], stream));
    CHECK(cu.StreamSynchronize(stream));
}

static void *stay_busy(void *argument) {
    const struct busy *busy = argument;
    CUstream streams[2];
    char *host = calloc(1, COPY_BYTES);
    CHECK(cu.CtxSetCurrent(busy->work->context));
    for (int i = 0; i < 2; i++) CHECK(cu.StreamCreate(&streams[i], 1));
    say("holding");
    while (1) {
        if (!strcmp(busy->what, "launch")) {
            launch(chew, BLOCKS, streams[0], NULL);
            CHECK(cu.StreamSynchronize(streams[0]));
        } else if (!strcmp(busy->what, "storm")) {
            storm(busy->work, streams);
        } else if (!strcmp(busy->what, "memory")) {
            take_and_give_back(streams[0]);
        } else if (!strcmp(busy->what, "capture")) {
            CHECK(cuGraphExecDestroy(graph_of(busy->work, streams[0], chew, 3, NULL)));
        } else if (!strcmp(busy->what, "copy")) {
            to_device(busy->buffer, host, COPY_BYTES);
            to_host(host, busy->buffer, COPY_BYTES);
        } else {
            poll(NULL, 0, -1);
        }
    }
}

static void hold(struct work *work, unsigned long pieces, const char *what) {
    CUstream a, b;
    CUdeviceptr taken;
    CUresult result = 0;
    unsigned long blocks = 0;
    struct busy busy = {.work = work, .what = what};
    pthread_t thread;
    CHECK(cu.StreamCreate(&a, 1));
    CHECK(cu.StreamCreate(&b, 1));
    CUgraphExec exec = graph_of(work, a, chew, 3, NULL);
    CHECK(cu.MemAlloc(&busy.buffer, COPY_BYTES));
    while (blocks < pieces && (result = cu.MemAlloc(&taken, 16 * MIB)) == 0) blocks++;
    if (result != 0 && result != OUT_OF_MEMORY) exit(CUDA_FAILED);
    launch_once(work, exec, a);
    /* This kernel runs longer than any test; the process is terminated before. */
    launch(lasting, 1, a, NULL);
    CHECK(cuStreamBeginCapture_v2(b, THREAD_LOCAL));
    record_launch(work, b);
    printf("blocks=%lu\n", blocks);
    if (pthread_create(&thread, NULL, stay_busy, &busy)) exit(3);
    wait_until_told_to_end();
    _exit(0);
}

int main(int argc, char **argv) {
    struct work work;
    if (argc < 2) return 2;
    open_all(&work);
    if (!strcmp(argv[1], "hp")) serve(&work);
    else if (!strcmp(argv[1], "be")) train(&work);
    else if (argc == 4) hold(&work, strtoul(argv[2], NULL, 10), argv[3]);
    work_check(&work);
    say_asked_graphs();
    return 0;
}
