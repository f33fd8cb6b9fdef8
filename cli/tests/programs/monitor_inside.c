/* monitor_inside MIB: holds MIB of the device and asks NVML about it: as a linked program, by
 * dlsym, and in a child of fork. NVML's functions are declared from its public reference. */
#include "cuda_mem.h"

#include <dlfcn.h>
#include <sys/wait.h>

typedef void *Device;
typedef struct { uint64_t total, free, used; } Memory;
typedef struct { unsigned pid; uint64_t bytes; unsigned gpu_instance, compute_instance; } Process;
typedef unsigned (*AskMemory)(Device, Memory *);
typedef unsigned (*AskProcesses)(Device, unsigned *, Process *);

unsigned nvmlInit_v2(void);
unsigned nvmlDeviceGetHandleByIndex_v2(unsigned, Device *);
unsigned nvmlDeviceGetMemoryInfo(Device, Memory *);
unsigned nvmlDeviceGetComputeRunningProcesses_v3(Device, unsigned *, Process *);

static pid_t holder;

static void ask(const char *way, AskMemory memory, AskProcesses processes) {
    Device device;
    Memory told;
    Process list[16];
    unsigned count = 16, own = 0;
    CHECK(nvmlDeviceGetHandleByIndex_v2(0, &device));
    CHECK(memory(device, &told));
    printf("%s_total=%lu %s_used=%lu %s_free=%lu\n", way, told.total, way, told.used, way, told.free);
    CHECK(processes(device, &count, list));
    for (unsigned i = 0; i < count; i++) own += list[i].pid == (unsigned)holder;
    printf("%s_own=%u %s_others=%u\n", way, own, way, count - own);
    fflush(stdout);
}

int main(int argc, char **argv) {
    size_t free_bytes, total;
    CUdeviceptr address;
    int status;
    if (argc < 2) return 2;
    holder = getpid();
    CHECK(cuInit(0));
    start_context();
    CHECK(cuMemAlloc_v2(&address, (size_t)atoi(argv[1]) << 20));
    CHECK(nvmlInit_v2());
    ask("linked", nvmlDeviceGetMemoryInfo, nvmlDeviceGetComputeRunningProcesses_v3);
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    ask("found", (AskMemory)dlsym(library, "nvmlDeviceGetMemoryInfo"),
        (AskProcesses)dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3"));
    pid_t child = fork();
    if (child == 0) {
        ask("forked", nvmlDeviceGetMemoryInfo, nvmlDeviceGetComputeRunningProcesses_v3);
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || status != 0) return 3;
    CHECK(cuMemGetInfo_v2(&free_bytes, &total));
    printf("driver_total=%zu driver_free=%zu\n", total, free_bytes);
    return 0;
}
