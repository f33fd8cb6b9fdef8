/* A service that says when its requests begin and end (include/pillion.h).
 *
 * Without Pillion's library in the process the calls do nothing and the program runs the same. A request here is the
 * clearing of a buffer on the GPU; the driver is called as in ../1-c-program/saxpy.c.
 *
 *     cc -I include -o /tmp/service examples/7-marks/service.c -ldl
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

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

enum { WORDS = 1 << 20, REQUESTS = 50 };

int main(void) {
    CUdevice device;
    CUcontext context;
    CUdeviceptr buffer;
    CALL(cuInit, (unsigned), 0);
    CALL(cuDeviceGet, (CUdevice *, int), &device, 0);
    CALL(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice), &context, 0, device);
    CALL(cuMemAlloc_v2, (CUdeviceptr *, size_t), &buffer, WORDS * sizeof(uint32_t));

    /* 99 of 100 requests of kind 0 are to take at most 50 ms from their arrival. */
    pillion_slo(0, 50000000, 990);
    int marked = 0;
    for (int i = 0; i < REQUESTS; i++) {
        /* 0: it arrives now. A server gives the time at which it received the request. */
        pillion_request request = pillion_begin(0, 0, 1);
        CALL(cuMemsetD32_v2, (CUdeviceptr, unsigned, size_t), buffer, 0, WORDS);
        CALL(cuCtxSynchronize, (void), );
        marked += pillion_end(request) == 0;
    }
    printf("%d of %d requests marked\n", marked, REQUESTS);
    return 0;
}
