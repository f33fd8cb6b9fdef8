/* record HOW ROUNDS: launches with a known record: kernels of one, two and three blocks that take
 * 25, 120 and 600 us.
 *
 *   rounds    rounds of 16 launches, then one of 512 blocks, which run in several waves; waits for
 *             each round
 *   idle      waits for each launch
 *   brief     rounds of launches of four blocks that take 5 us; waits for each round
 *   capture   a stream is in capture while another thread launches rounds; then its graph runs
 *   turns     rounds of 32 launches of one kernel of four blocks, of which the first takes 300 us
 *             and the others 30 us, after a long launch of another kernel
 *   cancel    a cancelled thread makes the first launches, which are no cancellation points
 *   forks     rounds, and an early child process that has its own rounds and ends by _exit
 *   for-ever  rounds, each printed, until standard input ends or the process is killed; prints its
 *             process id first
 *
 * Exits with 7. */
#include "cuda_min.h"

CUresult cuStreamBeginCapture_v2(CUstream, int);
CUresult cuStreamEndCapture(CUstream, void **);
CUresult cuGraphInstantiateWithFlags(void **, void *, uint64_t);
CUresult cuGraphLaunch(void *, CUstream);

static struct work work;
static CUfunction tiny, brief, middle, lengthy, waves;

static void open_all(void) {
    open_door("linked");
    work_open(&work, "softgpu-module 1\n"
                     "kernel tiny block_ns=5000 regs=32 shared=0 compute=0.01 bandwidth=0.01\n"
                     "kernel brief block_ns=25000 regs=32 shared=0 compute=0.01 bandwidth=0.01\n"
                     "kernel middle block_ns=120000 regs=32 shared=0 compute=0.01 bandwidth=0.01\n"
                     "kernel lengthy block_ns=600000 regs=32 shared=0 compute=0.01 bandwidth=0.01\n"
                     "kernel waves block_ns=50000 regs=128 shared=0 compute=0.5 bandwidth=0.01\n");
    CHECK(cu.ModuleGetFunction(&tiny, work.module, "tiny"));
    CHECK(cu.ModuleGetFunction(&brief, work.module, "brief"));
    CHECK(cu.ModuleGetFunction(&middle, work.module, "middle"));
    CHECK(cu.ModuleGetFunction(&lengthy, work.module, "lengthy"));
    CHECK(cu.ModuleGetFunction(&waves, work.module, "waves"));
}

static void wait_for(int each) {
    if (each) CHECK(cu.CtxSynchronize());
}

static void round_of_launches(CUstream stream, int each) {
    for (int i = 0; i < 5; i++) {
        launch(brief, 1, stream, NULL), wait_for(each);
        launch(middle, 2, stream, NULL), wait_for(each);
        launch(lengthy, 3, stream, NULL), wait_for(each);
    }
    launch(waves, 512, stream, NULL);
    CHECK(cu.CtxSynchronize());
}

static void rounds(int count, int each) {
    for (int i = 0; i < count; i++) round_of_launches(NULL, each);
}

static void tiny_rounds(int count) {
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < 16; j++) launch(tiny, 4, NULL, NULL);
        CHECK(cu.CtxSynchronize());
    }
}

/* Launches on its own stream, which does not wait for the one in capture. */
static void *beside(void *count) {
    CUstream stream;
    CHECK(cu.CtxSetCurrent(work.context));
    CHECK(cu.StreamCreate(&stream, 1));
    for (int i = 0; i < 5 * (int)(intptr_t)count; i++) launch(brief, 1, stream, NULL);
    return NULL;
}

static void capture(int count) {
    pthread_t thread;
    CUstream stream;
    void *graph, *exec;
    CHECK(cu.StreamCreate(&stream, 1));
    CHECK(cuStreamBeginCapture_v2(stream, 0));
    CHECK(cu.LaunchKernel(middle, 2, 1, 1, 256, 1, 1, 0, stream, NULL, NULL));
    if (pthread_create(&thread, NULL, beside, (void *)(intptr_t)count)) exit(5);
    pthread_join(thread, NULL);
    CHECK(cu.LaunchKernel(lengthy, 3, 1, 1, 256, 1, 1, 0, stream, NULL, NULL));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < count; i++) CHECK(cuGraphLaunch(exec, stream));
    CHECK(cu.CtxSynchronize());
}

/* Two kernels that Pillion cannot distinguish. */
static CUfunction turn(const char *text) {
    CUmodule module;
    CUfunction function;
    CHECK(cu.ModuleLoadData(&module, text));
    CHECK(cu.ModuleGetFunction(&function, module, "turn"));
    return function;
}

static void turns(int count) {
    CUfunction slow = turn("softgpu-module 1\n"
                           "kernel turn block_ns=300000 regs=32 shared=0 compute=0.01 bandwidth=0.01\n");
    CUfunction quick = turn("softgpu-module 1\n"
                            "kernel turn block_ns=30000 regs=32 shared=0 compute=0.01 bandwidth=0.01\n");
    for (int i = 0; i < count; i++) {
        launch(lengthy, 3, NULL, NULL);
        launch(slow, 4, NULL, NULL);
        for (int other = 1; other < 32; other++) launch(quick, 4, NULL, NULL);
        CHECK(cu.CtxSynchronize());
    }
}

static void *launch_cancelled(void *count) {
    CHECK(cu.CtxSetCurrent(work.context));
    pthread_cancel(pthread_self());
    for (int i = 0; i < (int)(intptr_t)count; i++) launch(brief, 1 + i, NULL, NULL);
    pthread_testcancel();
    exit(8);
}

static void cancel(int count) {
    pthread_t thread;
    void *result;
    if (pthread_create(&thread, NULL, launch_cancelled, (void *)(intptr_t)count)) exit(5);
    if (pthread_join(thread, &result) || result != PTHREAD_CANCELED) exit(6);
    CHECK(cu.CtxSynchronize());
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int count = atoi(argv[2]);
    if (!strcmp(argv[1], "forks")) {
        pid_t child = fork();
        if (child == 0) {
            open_all();
            rounds(count, 0);
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status) exit(6);
    }
    open_all();
    if (!strcmp(argv[1], "capture")) {
        capture(count);
    } else if (!strcmp(argv[1], "turns")) {
        turns(count);
    } else if (!strcmp(argv[1], "cancel")) {
        cancel(count);
    } else if (!strcmp(argv[1], "brief")) {
        tiny_rounds(count);
    } else if (!strcmp(argv[1], "for-ever")) {
        printf("%d\n", getpid()), fflush(stdout);
        do {
            rounds(count, 0);
            say("round");
        } while (!is_told_to_end());
    } else {
        rounds(count, !strcmp(argv[1], "idle"));
    }
    say_asked();
    return 7;
}
