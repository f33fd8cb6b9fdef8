/* charges MODE: allocates and frees device memory in unusual ways, and prints "look" before each
 * line that it reads.
 *
 *   variable  a module's variable, found twice; the module's unload frees it
 *   green     memory that is allocated in a green context, which ends before the memory is freed
 *   contexts  the last context of the device ends, and another is made
 *   capture   memory allocations in captures without effect: invalidated, in a destroyed graph, and
 *             in a destroyed stream
 *   free      free memory falls by each allocation and rises by the same at its free, for every
 *             kind of allocation; prints "host" and results
 *   exec      holds 700 MiB and replaces itself by the same program in mode "again"
 *   again     allocates 700 MiB, prints "granted" or "refused" */
#include "cuda_mem.h"

#define MIB ((size_t)1 << 20)
#define IMAGE ".version 8.0\n.target sm_70\n.address_size 64\n.visible .global .align 16 .b8 table[3000000];\n" \
    ".visible .entry nothing()\n{\n\tret;\n}\n"

typedef struct { unsigned type; char internal[92]; unsigned sms; char rest[44]; } Resource;
CUresult cuModuleLoadData(void **, const void *);
CUresult cuModuleUnload(void *);
CUresult cuModuleGetGlobal_v2(CUdeviceptr *, size_t *, void *, const char *);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice);
CUresult cuDeviceGetDevResource(CUdevice, Resource *, unsigned);
CUresult cuDevResourceGenerateDesc(void **, Resource *, unsigned);
CUresult cuGreenCtxCreate(void **, void *, CUdevice, unsigned);
CUresult cuGreenCtxDestroy(void *);
CUresult cuStreamBeginCapture_v2(CUstream, int);
CUresult cuStreamEndCapture(CUstream, void **);
CUresult cuGraphDestroy(void *);
CUresult cuCtxFromGreenCtx(CUcontext *, void *);

static void look(void) {
    char line[8];
    puts("look");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) exit(0);
}

static void variable(void) {
    void *module;
    CUdeviceptr address, again;
    size_t bytes;
    start_context();
    CHECK(cuModuleLoadData(&module, IMAGE));
    CHECK(cuModuleGetGlobal_v2(&address, &bytes, module, "table"));
    SHOW(bytes == 3000000);
    CHECK(cuModuleGetGlobal_v2(&again, &bytes, module, "table"));
    SHOW(address == again);
    look();
    CHECK(cuModuleUnload(module));
    look();
}

static void green(void) {
    Resource sms;
    CUcontext primary, context;
    void *description, *green;
    CUdeviceptr address;
    CHECK(cuDevicePrimaryCtxRetain(&primary, 0));
    CHECK(cuDeviceGetDevResource(0, &sms, 1));
    CHECK(cuDevResourceGenerateDesc(&description, &sms, 1));
    CHECK(cuGreenCtxCreate(&green, description, 0, 1));
    CHECK(cuCtxFromGreenCtx(&context, green));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc_v2(&address, 64 * MIB));
    look();
    CHECK(cuCtxSetCurrent(primary));
    CHECK(cuGreenCtxDestroy(green));
    look();
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    look();
}

static void contexts(void) {
    CUcontext context;
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    look();
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    look();
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    look();
}

static size_t free_bytes(void) {
    size_t bytes, total;
    CHECK(cuMemGetInfo_v2(&bytes, &total));
    SHOW(bytes <= total);
    return bytes;
}

static void capture(void) {
    CUstream stream;
    CUdeviceptr address;
    void *graph;
    start_context();
    CHECK(cuStreamCreate(&stream, 1));
    size_t before = free_bytes();
    for (int round = 0; round < 3; round++) {
        CHECK(cuStreamBeginCapture_v2(stream, 0));
        CHECK(cuMemAllocAsync(&address, 64 * MIB, stream));
        /* A capture does not permit this call, which invalidates it. */
        EXPECT(900, cuStreamSynchronize(stream));
        EXPECT(901, cuStreamEndCapture(stream, &graph));
        SHOW(free_bytes() == before);
    }
    look();
    CHECK(cuStreamBeginCapture_v2(stream, 0));
    CHECK(cuMemAllocAsync(&address, 64 * MIB, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphDestroy(graph));
    SHOW(free_bytes() == before);
    look();
    CHECK(cuStreamBeginCapture_v2(stream, 0));
    CHECK(cuMemAllocAsync(&address, 64 * MIB, stream));
    CHECK(cuStreamDestroy_v2(stream));
    SHOW(free_bytes() == before);
    look();
}

enum { PLAIN, PITCHED, ARRAYED, ORDERED, PHYSICAL, PINNED, WAYS };
struct taken { CUdeviceptr address; void *handle; CUhandle physical; };

static void take(struct taken *taken, int way, size_t bytes) {
    AllocationProp properties = {.type = 1, .location = {1, 0}};
    Array3DDescriptor array = {1000, 700, 0, 0x20, 4, 0};
    size_t pitch;
    switch (way) {
    case PLAIN: CHECK(cuMemAlloc_v2(&taken->address, bytes)); break;
    case PITCHED: CHECK(cuMemAllocPitch_v2(&taken->address, &pitch, 1001, bytes / 1001, 4)); break;
    case ARRAYED: CHECK(cuArray3DCreate_v2(&taken->handle, &array)); break;
    case ORDERED: CHECK(cuMemAllocAsync(&taken->address, bytes, NULL)); break;
    case PHYSICAL: CHECK(cuMemCreate(&taken->physical, 4 * MIB, &properties, 0)); break;
    default: CHECK(cuMemHostAlloc(&taken->handle, bytes, 0));
    }
    CHECK(cuCtxSynchronize());
}

static void give_back(struct taken *taken, int way) {
    switch (way) {
    case PLAIN: case PITCHED: CHECK(cuMemFree_v2(taken->address)); break;
    case ARRAYED: CHECK(cuArrayDestroy(taken->handle)); break;
    case ORDERED: CHECK(cuMemFreeAsync(taken->address, NULL)); break;
    case PHYSICAL: CHECK(cuMemRelease(taken->physical)); break;
    default: CHECK(cuMemFreeHost(taken->handle));
    }
    CHECK(cuCtxSynchronize());
}

/* Host memory of every kind does not count as device memory: requests reach the driver even when
 * the device is full. */
static void ask_for_hosts(void) {
    printf("host");
    for (unsigned type = 2; type <= 4; type++) {
        AllocationProp properties = {.type = 1, .location = {type, 0}};
        CUhandle handle;
        printf(" %d", cuMemCreate(&handle, 4 * MIB, &properties, 0));
    }
    puts("");
}

static void move_free(void) {
    CUdeviceptr rest;
    struct taken taken[2];
    start_context();
    const size_t bytes = 5 * MIB + 1, before = free_bytes();
    for (int round = 0; round < 3; round++) {
        for (int way = 0; way < WAYS; way++) {
            take(&taken[0], way, bytes);
            size_t first = before - free_bytes();
            SHOW(way == PINNED ? first == 0 : first >= 1000 * 700 * 4 && first < 16 * MIB);
            take(&taken[1], way, bytes);
            size_t both = before - free_bytes();
            SHOW(both <= 2 * first && (way == ORDERED || both == 2 * first));
            give_back(&taken[0], way);
            SHOW(way == ORDERED || before - free_bytes() == first);
            give_back(&taken[1], way);
            SHOW(free_bytes() == before);
        }
    }
    look();
    CHECK(cuMemAlloc_v2(&rest, before));
    SHOW(free_bytes() == 0);
    EXPECT(OUT_OF_MEMORY, cuMemAlloc_v2(&taken[0].address, 1));
    ask_for_hosts();
    SHOW(free_bytes() == 0);
    look();
}

static void hold(const char *program) {
    CUdeviceptr address;
    start_context();
    CUresult result = cuMemAlloc_v2(&address, 700 * MIB);
    puts(result == 0 ? "granted" : result == OUT_OF_MEMORY ? "refused" : "wrong");
    fflush(stdout);
    look();
    if (program) execl("/proc/self/exe", program, "again", NULL);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    CHECK(cuInit(0));
    if (!strcmp(argv[1], "variable")) variable();
    else if (!strcmp(argv[1], "green")) green();
    else if (!strcmp(argv[1], "contexts")) contexts();
    else if (!strcmp(argv[1], "capture")) capture();
    else if (!strcmp(argv[1], "free")) move_free();
    else hold(!strcmp(argv[1], "exec") ? argv[0] : NULL);
    return 0;
}
