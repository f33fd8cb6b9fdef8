/* The part of the CUDA driver API that the test programs use, and work with a known result.
 *
 * Written from the public API, so that no CUDA toolkit is needed. Every function is called through
 * `cu`, which one of the *doors* fills. Doors are the ways in which real programs find the driver's
 * entry points:
 *
 *   linked     the program is linked with -lcuda (compiled with -DLINKED)
 *   dlsym      dlopen and dlsym, as cuBLASLt does
 *   proc       as cudart does: dlsym finds cuGetProcAddress_v2, which returns cuGetProcAddress,
 *              which returns the rest
 *   own        dlsym in the scope of the calling library, which is linked with the driver
 *   dlsym-ptsz, proc-ptsz   the same for the per-thread default stream */
#ifndef CUDA_MIN_H
#define CUDA_MIN_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef void *CUcontext, *CUmodule, *CUfunction, *CUstream;

#define CUDA_FUNCTIONS(X) \
    X(Init, "cuInit", "cuInit", cuInit, (unsigned)) \
    X(DeviceGet, "cuDeviceGet", "cuDeviceGet", cuDeviceGet, (CUdevice *, int)) \
    X(CtxCreate, "cuCtxCreate_v2", "cuCtxCreate_v2", cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice)) \
    X(CtxDestroy, "cuCtxDestroy_v2", "cuCtxDestroy_v2", cuCtxDestroy_v2, (CUcontext)) \
    X(CtxSetCurrent, "cuCtxSetCurrent", "cuCtxSetCurrent", cuCtxSetCurrent, (CUcontext)) \
    X(CtxSynchronize, "cuCtxSynchronize", "cuCtxSynchronize", cuCtxSynchronize, (void)) \
    X(MemAlloc, "cuMemAlloc_v2", "cuMemAlloc_v2", cuMemAlloc_v2, (CUdeviceptr *, size_t)) \
    X(MemFree, "cuMemFree_v2", "cuMemFree_v2", cuMemFree_v2, (CUdeviceptr)) \
    X(MemcpyHtoD, "cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds", cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t)) \
    X(MemcpyDtoH, "cuMemcpyDtoH_v2", "cuMemcpyDtoH_v2_ptds", cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t)) \
    X(ModuleLoadData, "cuModuleLoadData", "cuModuleLoadData", cuModuleLoadData, (CUmodule *, const void *)) \
    X(ModuleGetFunction, "cuModuleGetFunction", "cuModuleGetFunction", cuModuleGetFunction, \
      (CUfunction *, CUmodule, const char *)) \
    X(StreamCreate, "cuStreamCreate", "cuStreamCreate", cuStreamCreate, (CUstream *, unsigned)) \
    X(StreamSynchronize, "cuStreamSynchronize", "cuStreamSynchronize_ptsz", cuStreamSynchronize, (CUstream)) \
    X(LaunchKernel, "cuLaunchKernel", "cuLaunchKernel_ptsz", cuLaunchKernel, \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **))

#define FIELD(name, symbol, per_thread, linked, parameters) CUresult(*name) parameters;
static struct { CUDA_FUNCTIONS(FIELD) } cu;

/* The program's requests, to be compared with the counts of Pillion and of the device. */
static struct { atomic_ulong launches, h2d_bytes, d2h_bytes; } asked;

#define NOT_CUDA 91
#define CUDA_FAILED 90
#define WRONG_RESULT 92

#define CHECK(call) do { \
        CUresult result_ = (call); \
        if (result_ != 0) { \
            fprintf(stderr, "%s:%d: %s: CUresult %u\n", __FILE__, __LINE__, #call, result_); \
            exit(CUDA_FAILED); \
        } \
    } while (0)

#ifdef LINKED
#define DECLARE(name, symbol, per_thread, linked, parameters) CUresult linked parameters;
CUDA_FUNCTIONS(DECLARE)
static void open_door(const char *door) {
    (void)door;
#define TAKE_LINKED(name, symbol, per_thread, linked, parameters) cu.name = linked;
    CUDA_FUNCTIONS(TAKE_LINKED)
}
#else
typedef CUresult (*get_proc_address)(const char *, void **, int, uint64_t, int *);

static void *found(void *address, const char *symbol) {
    if (address == NULL) {
        fprintf(stderr, "no %s\n", symbol);
        exit(NOT_CUDA);
    }
    return address;
}

/* The name without version and kind of default stream, as cuGetProcAddress expects it. */
static const char *api(const char *symbol, char *name) {
    strcpy(name, symbol);
    char *version = strstr(name, "_v2");
    if (version != NULL) *version = 0;
    return name;
}

static void *ask(get_proc_address proc, const char *symbol, int per_thread) {
    char name[64];
    void *address = NULL;
    int status = -1;
    /* The version of cuCtxCreate with three parameters is 3.2. */
    int version = strcmp(symbol, "cuCtxCreate_v2") == 0 ? 3020 : 12000;
    CHECK(proc(api(symbol, name), &address, version, per_thread ? 2 : 0, &status));
    return found(address, symbol);
}

static void open_door(const char *door) {
    int per_thread = strstr(door, "ptsz") != NULL;
    int is_default = strcmp(door, "default") == 0, is_own = strcmp(door, "own") == 0;
    void *library = RTLD_DEFAULT;
    if (!is_own) library = found(dlopen("libcuda.so.1", RTLD_NOW | (is_default ? RTLD_GLOBAL : 0)), "libcuda.so.1");
    if (is_default) library = RTLD_DEFAULT;
    if (strncmp(door, "proc", 4) == 0) {
        get_proc_address first = (get_proc_address)found(dlsym(library, "cuGetProcAddress_v2"), "cuGetProcAddress_v2");
        get_proc_address proc = (get_proc_address)ask(first, "cuGetProcAddress", per_thread);
#define TAKE_ASKED(name, symbol, per_thread_symbol, linked, parameters) cu.name = ask(proc, symbol, per_thread);
        CUDA_FUNCTIONS(TAKE_ASKED)
        return;
    }
#define TAKE_DLSYM(name, symbol, per_thread_symbol, linked, parameters) \
    cu.name = found(dlsym(library, per_thread ? per_thread_symbol : symbol), symbol);
    CUDA_FUNCTIONS(TAKE_DLSYM)
}
#endif

static inline void launch(CUfunction function, unsigned blocks, CUstream stream, void **parameters) {
    CHECK(cu.LaunchKernel(function, blocks, 1, 1, 256, 1, 1, 0, stream, parameters, NULL));
    atomic_fetch_add(&asked.launches, 1);
}

static inline void to_device(CUdeviceptr to, const void *from, size_t bytes) {
    CHECK(cu.MemcpyHtoD(to, from, bytes));
    atomic_fetch_add(&asked.h2d_bytes, bytes);
}

static inline void to_host(void *to, CUdeviceptr from, size_t bytes) {
    CHECK(cu.MemcpyDtoH(to, from, bytes));
    atomic_fetch_add(&asked.d2h_bytes, bytes);
}

/* Small whole numbers, so that every sum below is exact. */
#define ELEMENTS 4096

/* A context and a vector y; each saxpy adds x to it. */
struct work {
    CUcontext context;
    CUmodule module;
    CUfunction saxpy;
    CUdeviceptr x, y;
    atomic_ulong raised;
};

/* Fills `work` for the current context. */
static inline void work_fill(struct work *work, const char *image) {
    CHECK(cu.ModuleLoadData(&work->module, image));
    CHECK(cu.ModuleGetFunction(&work->saxpy, work->module, "saxpy"));
    CHECK(cu.MemAlloc(&work->x, ELEMENTS * sizeof(float)));
    CHECK(cu.MemAlloc(&work->y, ELEMENTS * sizeof(float)));
    float host[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++) host[i] = (float)(i % 3);
    to_device(work->x, host, sizeof host);
    for (int i = 0; i < ELEMENTS; i++) host[i] = (float)(i % 7);
    to_device(work->y, host, sizeof host);
    atomic_init(&work->raised, 0);
}

static inline void work_open(struct work *work, const char *image) {
    CUdevice device;
    CHECK(cu.Init(0));
    CHECK(cu.DeviceGet(&device, 0));
    CHECK(cu.CtxCreate(&work->context, 0, device));
    work_fill(work, image);
}

/* y = x + y */
static inline void work_launch(struct work *work, CUstream stream) {
    float a = 1;
    unsigned n = ELEMENTS;
    void *parameters[] = {&a, &work->x, &work->y, &n};
    launch(work->saxpy, ELEMENTS / 256, stream, parameters);
    atomic_fetch_add(&work->raised, 1);
}

/* Checks that each launch took effect exactly once. */
static inline void work_check(struct work *work) {
    float host[ELEMENTS];
    CHECK(cu.CtxSynchronize());
    to_host(host, work->y, sizeof host);
    for (int i = 0; i < ELEMENTS; i++) {
        float expected = (float)(i % 7) + (float)atomic_load(&work->raised) * (float)(i % 3);
        if (host[i] != expected) {
            printf("wrong: y[%d] is %g, not %g\n", i, (double)host[i], (double)expected);
            fflush(stdout);
            exit(WRONG_RESULT);
        }
    }
}

static inline void say_asked(void) {
    printf("launches=%lu copied_h2d_bytes=%lu copied_d2h_bytes=%lu\n", atomic_load(&asked.launches),
           atomic_load(&asked.h2d_bytes), atomic_load(&asked.d2h_bytes));
    fflush(stdout);
}

static inline void say(const char *word) {
    puts(word);
    fflush(stdout);
}

/* Whether the test closes our standard input within so many milliseconds; that means: exit. */
static inline int is_told_to_end_within(int ms) {
    struct pollfd in = {.fd = 0, .events = POLLIN};
    char byte;
    return poll(&in, 1, ms) > 0 && read(0, &byte, 1) <= 0;
}

static inline int is_told_to_end(void) { return is_told_to_end_within(0); }

static inline void wait_until_told_to_end(void) {
    char byte;
    while (read(0, &byte, 1) > 0) {}
}

#define PLAIN_IMAGE "softgpu-module 1\n"

#endif
