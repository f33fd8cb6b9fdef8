/* late: calls the driver after main has returned: from a thread's destructor, from functions
 * registered with atexit before and after the first use of CUDA, and from a destructor of the
 * program. Prints the result of each call. */
#include "cuda_min.h"

static struct work work;
static pthread_key_t key;

static void call(const char *where) {
    unsigned n = ELEMENTS;
    float a = 1;
    void *parameters[] = {&a, &work.x, &work.y, &n};
    CUdeviceptr memory = 0;
    /* A thread's destructor may have a context or not; both results must occur in the same order as
     * without Pillion. */
    CUresult launched = cu.LaunchKernel(work.saxpy, 1, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL);
    CUresult allocated = cu.MemAlloc(&memory, 4096);
    CUresult freed = cu.MemFree(memory);
    printf("%s: launch %u, alloc %u, free %u, sync %u\n", where, launched, allocated, freed, cu.CtxSynchronize());
    fflush(stdout);
}

static void at_thread_end(void *unused) {
    (void)unused;
    call("thread's destructor");
}

static void at_exit_first(void) { call("registered first"); }
static void at_exit_last(void) { call("registered last"); }

__attribute__((destructor)) static void at_end(void) { call("program's destructor"); }

static void *run(void *unused) {
    (void)unused;
    CHECK(cu.CtxSetCurrent(work.context));
    work_launch(&work, NULL);
    pthread_setspecific(key, &key);
    return NULL;
}

int main(void) {
    atexit(at_exit_first);
    pthread_key_create(&key, at_thread_end);
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    atexit(at_exit_last);
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run, NULL) != 0) return 3;
        pthread_join(thread, NULL);
    }
    return 5;
}
