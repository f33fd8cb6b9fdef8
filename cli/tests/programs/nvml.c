/* nvml: checks how NVIDIA's management library answers wrong arguments and calls in the wrong
 * order. Functions are declared from its public reference. Another process holds memory of the
 * device meanwhile; the arguments are its process id and its bytes. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE, TIMEOUT = 10 };
enum { VERSION_MISMATCH = 25 };

typedef struct { uint64_t total, free, used; } Memory;
typedef struct { unsigned version; uint64_t total, reserved, free, used; } MemoryV2;
typedef struct { unsigned pid; uint64_t bytes; unsigned gpu_instance, compute_instance; } Process;
typedef struct { unsigned pid; uint64_t bytes; } ProcessV1;
typedef struct { unsigned pid; uint64_t at_us; unsigned sm, memory, encoder, decoder; } Sample;

/* Every call takes numbers and addresses. */
typedef unsigned (*Call)();
static void *library;

static Call call(const char *name) {
    Call found = (Call)dlsym(library, name);
    if (!found) {
        printf("no %s\n", name);
        exit(1);
    }
    return found;
}

#define WANT(code, name, ...) do { \
    unsigned got = call(#name)(__VA_ARGS__); \
    if (got != (code)) { \
        printf("%s(%s) is %u, not %u (line %d)\n", #name, #__VA_ARGS__, got, (unsigned)(code), __LINE__); \
        exit(1); \
    } \
} while (0)
#define SHOW(fact) do { if (!(fact)) { printf("not so: %s (line %d)\n", #fact, __LINE__); exit(1); } } while (0)

static void uninitialised(void) {
    unsigned number;
    void *device;
    char text[96];
    WANT(UNINITIALIZED, nvmlShutdown);
    WANT(UNINITIALIZED, nvmlDeviceGetCount_v2, &number);
    WANT(UNINITIALIZED, nvmlDeviceGetHandleByIndex_v2, 0, &device);
    WANT(UNINITIALIZED, nvmlDeviceGetName, NULL, text, sizeof text);
    WANT(UNINITIALIZED, nvmlDeviceGetTemperature, NULL, 0, &number);
    const char *(*error)(unsigned) = (const char *(*)(unsigned))dlsym(library, "nvmlErrorString");
    SHOW(error && !strcmp(error(UNINITIALIZED), "Uninitialized") && !strcmp(error(12345), "Unknown Error"));
}

static void *device_found(void) {
    unsigned number;
    void *device, *again;
    char text[96];
    WANT(INVALID_ARGUMENT, nvmlDeviceGetCount_v2, NULL);
    WANT(OK, nvmlDeviceGetCount_v2, &number);
    SHOW(number == 1);
    WANT(INVALID_ARGUMENT, nvmlDeviceGetHandleByIndex_v2, 1, &device);
    WANT(INVALID_ARGUMENT, nvmlDeviceGetHandleByIndex_v2, 0, NULL);
    WANT(OK, nvmlDeviceGetHandleByIndex_v2, 0, &device);
    WANT(INVALID_ARGUMENT, nvmlDeviceGetName, NULL, text, sizeof text);
    WANT(INVALID_ARGUMENT, nvmlDeviceGetName, (char *)device + 1, text, sizeof text);
    WANT(INVALID_ARGUMENT, nvmlDeviceGetName, device, NULL, sizeof text);
    WANT(INSUFFICIENT_SIZE, nvmlDeviceGetName, device, text, 14);
    WANT(OK, nvmlDeviceGetName, device, text, 15);
    SHOW(!strcmp(text, "V100-SXM2-16GB"));
    WANT(OK, nvmlDeviceGetUUID, device, text, sizeof text);
    WANT(OK, nvmlDeviceGetHandleByUUID, text, &again);
    SHOW(again == device);
    WANT(NOT_FOUND, nvmlDeviceGetHandleByUUID, "GPU-0", &again);
    WANT(INVALID_ARGUMENT, nvmlDeviceGetHandleByUUID, NULL, &again);
    WANT(OK, nvmlDeviceGetHandleByPciBusId_v2, "0000:01:00.0", &again);
    SHOW(again == device);
    WANT(NOT_FOUND, nvmlDeviceGetHandleByPciBusId_v2, "0000:02:00.0", &again);
    WANT(INVALID_ARGUMENT, nvmlDeviceGetHandleByPciBusId_v2, "here", &again);
    return device;
}

static void memory(void *device, uint64_t bytes) {
    Memory memory;
    MemoryV2 v2 = {.version = 0};
    WANT(INVALID_ARGUMENT, nvmlDeviceGetMemoryInfo, device, NULL);
    WANT(OK, nvmlDeviceGetMemoryInfo, device, &memory);
    SHOW(memory.total == 16ull << 30 && memory.used == bytes && memory.free == memory.total - bytes);
    WANT(INVALID_ARGUMENT, nvmlDeviceGetMemoryInfo_v2, device, NULL);
    WANT(VERSION_MISMATCH, nvmlDeviceGetMemoryInfo_v2, device, &v2);
    v2.version = sizeof v2 | 2 << 24;
    WANT(OK, nvmlDeviceGetMemoryInfo_v2, device, &v2);
    SHOW(v2.total == memory.total && v2.reserved == 0 && v2.free == memory.free && v2.used == bytes);
}

static void processes(void *device, unsigned pid, uint64_t bytes) {
    unsigned count = 0;
    Process process[2];
    ProcessV1 old[2];
    Sample sample;
    WANT(INVALID_ARGUMENT, nvmlDeviceGetComputeRunningProcesses_v3, device, NULL, process);
    WANT(INSUFFICIENT_SIZE, nvmlDeviceGetComputeRunningProcesses_v3, device, &count, NULL);
    SHOW(count == 1);
    WANT(INVALID_ARGUMENT, nvmlDeviceGetComputeRunningProcesses_v3, device, &count, NULL);
    count = 2;
    WANT(OK, nvmlDeviceGetComputeRunningProcesses_v3, device, &count, process);
    SHOW(count == 1 && process[0].pid == pid && process[0].bytes == bytes && process[0].gpu_instance == -1u);
    WANT(OK, nvmlDeviceGetComputeRunningProcesses_v2, device, &count, process);
    WANT(OK, nvmlDeviceGetComputeRunningProcesses, device, &count, old);
    SHOW(count == 1 && old[0].pid == pid && old[0].bytes == bytes);
    /* The process draws nothing; it computes in time slices, not under MPS. */
    WANT(OK, nvmlDeviceGetGraphicsRunningProcesses_v3, device, &count, NULL);
    SHOW(count == 0);
    WANT(OK, nvmlDeviceGetMPSComputeRunningProcesses_v3, device, &count, NULL);
    SHOW(count == 0);
    /* The process holds memory and runs no kernel. */
    count = 1;
    WANT(NOT_FOUND, nvmlDeviceGetProcessUtilization, device, &sample, &count, (uint64_t)0);
    WANT(INVALID_ARGUMENT, nvmlDeviceGetProcessUtilization, device, &sample, NULL, (uint64_t)0);
}

/* A V100 has no GPM, but samples can be allocated. */
static void without_gpm(void *device) {
    unsigned support[2] = {2, 7};
    void *sample;
    struct { unsigned version, count; void *samples[2]; uint64_t metrics[5]; } get = {.version = 1, .count = 1};
    WANT(VERSION_MISMATCH, nvmlGpmQueryDeviceSupport, device, support);
    support[0] = 1;
    WANT(OK, nvmlGpmQueryDeviceSupport, device, support);
    SHOW(support[1] == 0);
    WANT(INVALID_ARGUMENT, nvmlGpmSampleAlloc, NULL);
    WANT(OK, nvmlGpmSampleAlloc, &sample);
    WANT(NOT_SUPPORTED, nvmlGpmSampleGet, device, sample);
    get.samples[0] = get.samples[1] = sample;
    WANT(INVALID_ARGUMENT, nvmlGpmMetricsGet, &get);
    get.version = 2;
    WANT(VERSION_MISMATCH, nvmlGpmMetricsGet, &get);
    WANT(OK, nvmlGpmSampleFree, sample);
    WANT(INVALID_ARGUMENT, nvmlGpmSampleFree, sample);
}

static void what_it_has_not(void *device) {
    unsigned numbers[8];
    uint64_t events;
    void *set;
    without_gpm(device);
    WANT(NOT_SUPPORTED, nvmlDeviceGetCurrentClocksEventReasons, device, &events);
    WANT(NOT_SUPPORTED, nvmlDeviceGetTemperature, device, 0, numbers);
    WANT(INVALID_ARGUMENT, nvmlDeviceGetTemperature, NULL, 0, numbers);
    WANT(NOT_SUPPORTED, nvmlDeviceGetFanSpeed, device, numbers);
    WANT(NOT_SUPPORTED, nvmlDeviceGetPowerUsage, device, numbers);
    WANT(OK, nvmlDeviceGetEccMode, device, numbers, numbers + 1);
    SHOW(numbers[0] == 1 && numbers[1] == 1);
    WANT(OK, nvmlDeviceGetTotalEccErrors, device, 1, 0, &events);
    SHOW(events == 0);
    WANT(INVALID_ARGUMENT, nvmlDeviceGetTotalEccErrors, device, 2, 0, &events);
    WANT(NOT_SUPPORTED, nvmlDeviceGetMigMode, device, numbers, numbers + 1); /* V100 */
    WANT(NOT_SUPPORTED, nvmlDeviceSetComputeMode, device, 3);
    WANT(NOT_SUPPORTED, nvmlDeviceGetClockInfo, device, 3, numbers);
    WANT(INVALID_ARGUMENT, nvmlDeviceGetClockInfo, device, 4, numbers);
    WANT(OK, nvmlDeviceGetClockInfo, device, 1, numbers);
    SHOW(numbers[0] == 1530);
    WANT(OK, nvmlDeviceGetSupportedEventTypes, device, &events);
    SHOW(events == 11);
    WANT(OK, nvmlEventSetCreate, &set);
    WANT(NOT_SUPPORTED, nvmlDeviceRegisterEvents, device, (uint64_t)4, set);
    WANT(OK, nvmlDeviceRegisterEvents, device, (uint64_t)8, set);
    WANT(TIMEOUT, nvmlEventSetWait_v2, set, numbers, 1);
    WANT(OK, nvmlEventSetFree, set);
}

int main(int argc, char **argv) {
    if (argc != 3 || !(library = dlopen("libnvidia-ml.so.1", RTLD_NOW))) return 2;
    unsigned pid = (unsigned)atoi(argv[1]);
    uint64_t bytes = strtoull(argv[2], NULL, 10);
    uninitialised();
    WANT(OK, nvmlInit_v2);
    WANT(OK, nvmlInit_v2);
    void *device = device_found();
    memory(device, bytes);
    processes(device, pid, bytes);
    what_it_has_not(device);
    /* Each nvmlInit needs its own nvmlShutdown. */
    WANT(OK, nvmlShutdown);
    memory(device, bytes);
    WANT(OK, nvmlShutdown);
    uninitialised();
    puts("right");
    return 0;
}
