/* The cost of a mark (include/pillion.h). Times blocks of begins and blocks of ends, each as a
 * whole, and subtracts the clock reading that times it. Prints one line: median and 95th percentile
 * of a begin, of an end and of a clock reading alone, in ns, then the number of accepted marks.
 * `run` in this folder runs it. */
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

/* Creates a context, so that the process becomes a client. Does nothing without a driver. */
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
        /* Time for the daemon to read the marks. */
        nanosleep(&pause, NULL);
    }
    print(begin_ns);
    print(end_ns);
    print(clock_ns);
    printf("%ld\n", accepted);
    return 0;
}
