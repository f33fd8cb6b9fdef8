/* Common code of the probes: the driver, loaded at run time as applications do, and a kernel of a
 * known duration.
 *
 * Written from the public driver API; no toolkit is needed. The kernel is `pillion_compute$0` of
 * the PTX that `pillion-replay --print-ptx` writes for spin.trace: chains of multiply-adds, with
 * the number of loops as a parameter. The software GPU recognises it and models its duration; any
 * other GPU executes it.
 *
 * A probe prints "ready" when it has a context and is calibrated, begins at the first line on its
 * standard input, prints one line of JSON, and stays alive until its standard input ends, so that
 * its parent can first query the daemon about it. */
#ifndef PROBE_H
#define PROBE_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef void *CUcontext, *CUmodule, *CUfunction, *CUstream, *CUevent;
typedef struct { int id; char pad[4]; union { char bytes[64]; int priority; } value; } CUlaunchAttribute;
typedef struct {
    unsigned grid[3], block[3], shared_bytes;
    CUstream stream;
    CUlaunchAttribute *attributes;
    unsigned count;
} CUlaunchConfig;

enum { NOT_READY = 600, PRIORITY_ATTRIBUTE = 8, NON_BLOCKING = 1, NO_TIMING = 2, DEVICE_SMS = 16 };

#define FUNCTIONS(X) \
    X(Init, "cuInit", (unsigned)) \
    X(DeviceGet, "cuDeviceGet", (CUdevice *, int)) \
    X(DeviceGetAttribute, "cuDeviceGetAttribute", (int *, int, CUdevice)) \
    X(PrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice)) \
    X(CtxSetCurrent, "cuCtxSetCurrent", (CUcontext)) \
    X(CtxSynchronize, "cuCtxSynchronize", (void)) \
    X(CtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange", (int *, int *)) \
    X(MemAlloc, "cuMemAlloc_v2", (CUdeviceptr *, size_t)) \
    X(MemFree, "cuMemFree_v2", (CUdeviceptr)) \
    X(MemsetD32, "cuMemsetD32_v2", (CUdeviceptr, unsigned, size_t)) \
    X(MemcpyDtoH, "cuMemcpyDtoH_v2", (void *, CUdeviceptr, size_t)) \
    X(ModuleLoadData, "cuModuleLoadData", (CUmodule *, const void *)) \
    X(ModuleGetFunction, "cuModuleGetFunction", (CUfunction *, CUmodule, const char *)) \
    X(StreamCreateWithPriority, "cuStreamCreateWithPriority", (CUstream *, unsigned, int)) \
    X(StreamSynchronize, "cuStreamSynchronize", (CUstream)) \
    X(EventCreate, "cuEventCreate", (CUevent *, unsigned)) \
    X(EventRecord, "cuEventRecord", (CUevent, CUstream)) \
    X(EventQuery, "cuEventQuery", (CUevent)) \
    X(EventSynchronize, "cuEventSynchronize", (CUevent)) \
    X(EventElapsedTime, "cuEventElapsedTime", (float *, CUevent, CUevent)) \
    X(LaunchKernelEx, "cuLaunchKernelEx", (const CUlaunchConfig *, CUfunction, void **, void **)) \
    X(LaunchKernel, "cuLaunchKernel", \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **))

#define FIELD(name, symbol, parameters) unsigned(*name) parameters;
static struct { FUNCTIONS(FIELD) } cu;
static void *driver;

#define CHECK(call) do { \
        unsigned result_ = (call); \
        if (result_ != 0) { \
            fprintf(stderr, "%s: CUresult %u\n", #call, result_); \
            exit(90); \
        } \
    } while (0)

static inline uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static inline void sleep_until_ns(uint64_t until) {
    uint64_t now = now_ns();
    if (until > now + 200000) {
        uint64_t rest = until - now - 150000;
        struct timespec time = {(time_t)(rest / 1000000000u), (long)(rest % 1000000000u)};
        nanosleep(&time, NULL);
    }
    while (now_ns() < until) {}
}

static inline void say(const char *line) {
    puts(line);
    fflush(stdout);
}

static inline void wait_for_line(void) {
    char line[64];
    if (fgets(line, sizeof line, stdin) == NULL) exit(0);
}

static inline int is_told_to_end(void) {
    struct pollfd in = {.fd = 0, .events = POLLIN};
    char byte;
    return poll(&in, 1, 0) > 0 && read(0, &byte, 1) <= 0;
}

static inline void wait_for_end(void) {
    char byte;
    while (read(0, &byte, 1) > 0) {}
}

/* The value of option `name` (`--us`), or `otherwise` if it is not given. */
static inline const char *argument(int count, char **arguments, const char *name, const char *otherwise) {
    for (int i = 1; i + 1 < count; i++)
        if (strcmp(arguments[i], name) == 0) return arguments[i + 1];
    return otherwise;
}

static inline double number(int count, char **arguments, const char *name, const char *otherwise) {
    return atof(argument(count, arguments, name, otherwise));
}

static inline char *text_of(const char *path) {
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        perror(path);
        exit(2);
    }
    size_t room = 1 << 20;
    char *text = calloc(1, room + 1);
    if (fread(text, 1, room, file) == room) exit(2);
    fclose(file);
    return text;
}

static inline void *find(const char *symbol) { return dlsym(driver, symbol); }

static inline void open_driver(void) {
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(91);
    }
#define TAKE(name, symbol, parameters) *(void **)&cu.name = find(symbol);
    FUNCTIONS(TAKE)
    if (cu.Init == NULL || cu.LaunchKernel == NULL) exit(91);
}

enum { THREADS = 256, PER_LOOP = 16, UNITS = 1 << 16, WARM_UP_NS = 200000000 };

/* The kernel, and the duration of one of its loops. */
struct spin {
    CUfunction function;
    CUdeviceptr results, buffer;
    int sms;
    double floor_us, loop_us;
};

static inline unsigned spin_launch(struct spin *spin, unsigned blocks, unsigned loops, CUstream stream, const int *priority) {
    unsigned more = 0, per_loop = PER_LOOP, mask = UNITS - 1, first = 0;
    void *parameters[] = {&spin->results, &spin->buffer, &loops, &more, &per_loop, &blocks, &mask, &first};
    if (priority == NULL)
        return cu.LaunchKernel(spin->function, blocks, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL);
    CUlaunchAttribute attribute = {.id = PRIORITY_ATTRIBUTE, .value.priority = *priority};
    CUlaunchConfig config = {{blocks, 1, 1}, {THREADS, 1, 1}, 0, stream, &attribute, 1};
    return cu.LaunchKernelEx(&config, spin->function, parameters, NULL);
}

/* The shortest of five launches, us. */
static inline double spin_us(struct spin *spin, unsigned blocks, unsigned loops) {
    CUevent begin, end;
    double least = 1e12;
    CHECK(cu.EventCreate(&begin, 0));
    CHECK(cu.EventCreate(&end, 0));
    for (int i = 0; i < 5; i++) {
        float ms;
        CHECK(cu.EventRecord(begin, NULL));
        CHECK(spin_launch(spin, blocks, loops, NULL, NULL));
        CHECK(cu.EventRecord(end, NULL));
        CHECK(cu.EventSynchronize(end));
        CHECK(cu.EventElapsedTime(&ms, begin, end));
        if (ms * 1e3 < least) least = ms * 1e3;
    }
    return least;
}

static inline void spin_open(struct spin *spin, const char *ptx) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    open_driver();
    CHECK(cu.Init(0));
    CHECK(cu.DeviceGet(&device, 0));
    CHECK(cu.DeviceGetAttribute(&spin->sms, DEVICE_SMS, device));
    CHECK(cu.PrimaryCtxRetain(&context, device));
    CHECK(cu.CtxSetCurrent(context));
    CHECK(cu.ModuleLoadData(&module, text_of(ptx)));
    CHECK(cu.ModuleGetFunction(&spin->function, module, "pillion_compute$0"));
    CHECK(cu.MemAlloc(&spin->results, 24));
    CHECK(cu.MemAlloc(&spin->buffer, UNITS * 16));
    CHECK(cu.MemsetD32(spin->results, 0, 6));
    CHECK(cu.MemsetD32(spin->buffer, 1, UNITS * 4));
}

static inline unsigned spin_loops(const struct spin *spin, double us) {
    double loops = (us - spin->floor_us) / spin->loop_us;
    return loops < 1 ? 1 : loops > 8e6 ? 8000000 : (unsigned)loops;
}

/* Fits duration against loops, for launches of `blocks` blocks, by a line through two points. */
static inline void spin_calibrate(struct spin *spin, unsigned blocks) {
    const unsigned few = 500, many = 8000;
    /* An idle GPU has lowered its clocks; the warm-up raises them. */
    for (uint64_t until = now_ns() + WARM_UP_NS; now_ns() < until;) spin_us(spin, blocks, many);
    double less = spin_us(spin, blocks, few), more = spin_us(spin, blocks, many);
    spin->loop_us = (more - less) / (many - few);
    spin->floor_us = less - few * spin->loop_us;
    if (!(spin->loop_us > 0)) {
        fprintf(stderr, "%u loops take %g us, %u take %g us\n", few, less, many, more);
        exit(92);
    }
}

/* Reads the kernel's counters from the GPU: sums, launches, threads with a wrong sum. */
static inline void spin_told(struct spin *spin, uint64_t told[3]) {
    CHECK(cu.CtxSynchronize());
    CHECK(cu.MemcpyDtoH(told, spin->results, 24));
}

static inline int by_size(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The element at index `part * count`, the last at most, of sorted numbers. */
static inline double quantile(const double *sorted, size_t count, double part) {
    if (count == 0) return 0;
    size_t rank = (size_t)(part * (double)count);
    return sorted[rank < count ? rank : count - 1];
}

static inline double median_of(double *values, size_t count) {
    qsort(values, count, sizeof *values, by_size);
    return quantile(values, count, 0.5);
}

#endif
