/* A service that marks when its requests begin and end, and states in which batches it can work on
 * them (include/pillion.h).
 *
 * Without Pillion's library in the process the calls do nothing and the program runs the same. A
 * request arrives every EVERY_US microseconds. For each batch of requests the service clears a part
 * of a buffer on the GPU. ../1-c-program/saxpy.c explains the calls of the driver.
 *
 *     cc -I include -o /tmp/service examples/7-marks/service.c -ldl
 *     /tmp/service [BATCHES [EVERY_US]] */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "pillion.h"

typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef void *CUcontext;

static void *entry_point(const char *name) {
    static void *driver;
    if (!driver) driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = driver ? dlsym(driver, name) : NULL;
    if (!found) {
        fprintf(stderr, "no %s: %s\n", name, dlerror());
        exit(1);
    }
    return found;
}

static void check(const char *call, int result) {
    if (result == 0) return;
    fprintf(stderr, "%s: CUresult %d\n", call, result);
    exit(1);
}

#define CALL(name, parameters, ...) check(#name, ((int (*) parameters)entry_point(#name))(__VA_ARGS__))

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void wait_until(uint64_t ns) {
    struct timespec then = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL) != 0) {}
}

/* The 32-bit words that a request clears, and the batches that the service can take. */
enum { WORDS = 1 << 17, LEAST = 2, MOST = 8, STEP = 2, FIRST = 4 };

int main(int argc, char **argv) {
    CUdevice device;
    CUcontext context;
    CUdeviceptr buffer;
    unsigned long batches = argc > 1 ? strtoul(argv[1], NULL, 10) : 50;
    uint64_t every_ns = (argc > 2 ? strtoull(argv[2], NULL, 10) : 1000) * 1000u;
    CALL(cuInit, (unsigned), 0);
    CALL(cuDeviceGet, (CUdevice *, int), &device, 0);
    CALL(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice), &context, 0, device);
    CALL(cuMemAlloc_v2, (CUdeviceptr *, size_t), &buffer, MOST * WORDS * sizeof(uint32_t));

    /* The target: 99 of 100 requests of kind 0 take at most half a second from their arrival.
     * Within it the daemon may choose the batch, if it has a section [tuner] and the job a target
     * in ms (pillion run --slo 500ms). */
    pillion_slo(0, 500000000, 990);
    pillion_batch_range(0, LEAST, MOST, STEP);
    unsigned long marked = 0;
    uint32_t batch = FIRST;
    uint64_t first_ns = now_ns();
    for (unsigned long i = 0; i < batches; i++) {
        /* The wanted batch, or the previous one. Work on it begins once its last request has
         * arrived. */
        batch = pillion_batch_wanted(0, batch);
        uint64_t last_ns = first_ns + (batch - 1) * every_ns;
        wait_until(last_ns);
        pillion_request request = pillion_begin(first_ns, 0, batch);
        CALL(cuMemsetD32_v2, (CUdeviceptr, unsigned, size_t), buffer, 0, (size_t)batch * WORDS);
        CALL(cuCtxSynchronize, (void), );
        marked += pillion_end(request) == 0;
        first_ns = last_ns + every_ns;
    }
    printf("%lu of %lu batches marked, the last one of %u requests\n", marked, batches, (unsigned)batch);
    return 0;
}
