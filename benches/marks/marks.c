/* What a mark costs (include/pillion.h): blocks of begins and of ends, each timed as a whole, less
 * the reading of the clock that times it. Prints one line: median and 95th percentile of a begin,
 * then of an end, then of a reading of the clock alone, in ns, and how many marks were accepted. A
 * program of `run` in this folder. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "pillion.h"

enum { BLOCK = 50, BLOCKS = 2000, PAUSE_NS = 500000 };

static double begin_ns[BLOCKS], end_ns[BLOCKS], clock_ns[BLOCKS];

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static int is_more(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A context, so that the process becomes a client; without a driver it stays none. */
static void become_client(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    unsigned long long buffer;
    int device;
    if (!driver) return;
    union { void *address; int (*init)(unsigned); int (*device)(int *, int); int (*context)(void **, unsigned, int);
            int (*allocate)(unsigned long long *, size_t); } call;
    call.address = dlsym(driver, "cuInit");
    if (call.init(0)) exit(1);
    call.address = dlsym(driver, "cuDeviceGet");
    if (call.device(&device, 0)) exit(1);
    call.address = dlsym(driver, "cuCtxCreate_v2");
    if (call.context(&context, 0, device)) exit(1);
    call.address = dlsym(driver, "cuMemAlloc_v2");
    if (call.allocate(&buffer, 4096)) exit(1);
}

static void print(double *ns) {
    qsort(ns, BLOCKS, sizeof *ns, is_more);
    printf("%.2f %.2f ", ns[BLOCKS / 2], ns[BLOCKS / 20 * 19]);
}

int main(void) {
    static pillion_request open[BLOCK];
    struct timespec read;
    struct timespec pause = {0, PAUSE_NS};
    long accepted = 0;
    become_client();
    for (int block = 0; block < BLOCKS; block++) {
        double from = now_ns();
        for (int i = 0; i < BLOCK; i++) open[i] = pillion_begin(0, 0, 1);
        double between = now_ns();
        for (int i = 0; i < BLOCK; i++) accepted += pillion_end(open[i]) == 0;
        double until = now_ns();
        for (int i = 0; i < BLOCK; i++) clock_gettime(CLOCK_MONOTONIC, &read);
        clock_ns[block] = (now_ns() - until) / (BLOCK + 1);
        begin_ns[block] = (between - from - clock_ns[block]) / BLOCK;
        end_ns[block] = (until - between - clock_ns[block]) / BLOCK;
        /* The daemon reads what was told. */
        nanosleep(&pause, NULL);
    }
    print(begin_ns);
    print(end_ns);
    print(clock_ns);
    printf("%ld\n", accepted);
    return 0;
}
