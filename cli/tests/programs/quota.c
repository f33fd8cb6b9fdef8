/* quota MODE SEED COUNT THREADS: allocates device memory in every way, until there is no more.
 *
 *   fill    on device COUNT, after a context on device 0: reads the views, also before it has a
 *           context; allocates 64 MiB at a time until a refusal, frees all blocks
 *   mixed   COUNT times, for each line on standard input: 40 random allocations and frees of every
 *           kind, or of kind THREADS if that is not 0, then prints "look"; after one more line
 *           frees all of it and prints "freed"
 *   storm   THREADS threads allocate and free at random until standard input ends; then everything
 *           is freed
 *   load    prints "ready", allocates COUNT MiB for each line on standard input, prints "granted"
 *           or "refused"
 *
 * A refusal must be "out of memory"; any other error ends the program. */
#include "cuda_mem.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

typedef void *CUgraph, *CUgraphNode, *CUgraphExec;
typedef struct { uint64_t props[11]; const void *access; size_t accesses, bytes; CUdeviceptr address; } AllocParams;
CUresult cuDeviceTotalMem_v2(size_t *, CUdevice);
CUresult cuMemPoolDestroy(CUmemoryPool);
CUresult cuGraphCreate(CUgraph *, unsigned);
CUresult cuGraphDestroy(CUgraph);
CUresult cuGraphAddMemAllocNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, AllocParams *);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphExecDestroy(CUgraphExec);

enum { KIB = 1 << 10, MIB = 1 << 20, SLOTS = 24 };
enum { NONE, PLAIN, PITCHED, MANAGED, ARRAYED, MIPMAPPED, ORDERED, POOLED, PHYSICAL, GRAPHED, KINDS };

static CUcontext context;
static CUmemoryPool pool;
static atomic_int is_over;
static atomic_ulong granted, refused;

struct slot { int kind; CUdeviceptr address; void *handle; CUhandle physical; size_t bytes; CUgraphExec exec; };
struct user { uint64_t seed; CUstream stream; struct slot slots[SLOTS]; };

static uint64_t any(struct user *user, uint64_t below) {
    user->seed = user->seed * 6364136223846793005u + 1442695040888963407u;
    return (user->seed >> 33) % below;
}

/* Whether the driver granted it. */
static int is_granted(CUresult result, const char *what) {
    if (result == 0) {
        atomic_fetch_add(&granted, 1);
        return 1;
    }
    if (result != OUT_OF_MEMORY) {
        fprintf(stderr, "%s: CUresult %d\n", what, result);
        exit(WRONG_RESULT);
    }
    atomic_fetch_add(&refused, 1);
    return 0;
}

static int take_physical(struct user *user, struct slot *slot) {
    AllocationProp properties = {.type = 1, .location = {1, 0}};
    AccessDesc access = {{1, 0}, 3};
    slot->bytes = (slot->bytes / (2 * MIB) + 1) * 2 * MIB;
    if (!is_granted(cuMemCreate(&slot->physical, slot->bytes, &properties, 0), "cuMemCreate")) return 0;
    CHECK(cuMemAddressReserve(&slot->address, slot->bytes, 0, 0, 0));
    CHECK(cuMemMap(slot->address, slot->bytes, 0, slot->physical, 0));
    CHECK(cuMemSetAccess(slot->address, slot->bytes, &access, 1));
    /* In any order: memory lives until its last handle and mapping are released. */
    if (any(user, 2)) {
        CHECK(cuMemRelease(slot->physical));
        slot->physical = 0;
        if (any(user, 2)) CHECK(cuMemRetainAllocationHandle(&slot->physical, (void *)slot->address));
    }
    return 1;
}

static int take_graph(struct slot *slot) {
    CUgraphNode node;
    CUgraph graph;
    AllocParams params = {.props = {1, 1}, .bytes = slot->bytes};
    CHECK(cuGraphCreate(&graph, 0));
    if (!is_granted(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params), "cuGraphAddMemAllocNode")) {
        CHECK(cuGraphDestroy(graph));
        return 0;
    }
    slot->handle = graph;
    CHECK(cuGraphInstantiateWithFlags(&slot->exec, graph, 0));
    return 1;
}

static int take(struct user *user, struct slot *slot, int kind) {
    Array3DDescriptor array = {1 + any(user, 300), 1 + any(user, 300), 1 + any(user, 4), 0x20, 4, 0};
    size_t pitch;
    slot->bytes = any(user, 4) ? 1 + any(user, 12 * MIB) : 1 + any(user, 64 * KIB);
    switch (kind) {
    case PLAIN: return is_granted(cuMemAlloc_v2(&slot->address, slot->bytes), "cuMemAlloc");
    case PITCHED:
        return is_granted(cuMemAllocPitch_v2(&slot->address, &pitch, 1 + slot->bytes % 5000, 1 + slot->bytes / 5000, 4), "pitch");
    case MANAGED: return is_granted(cuMemAllocManaged(&slot->address, slot->bytes, 1), "cuMemAllocManaged");
    case ARRAYED: return is_granted(cuArray3DCreate_v2((CUarray *)&slot->handle, &array), "cuArray3DCreate");
    case MIPMAPPED: return is_granted(cuMipmappedArrayCreate(&slot->handle, &array, 1), "cuMipmappedArrayCreate");
    case ORDERED: return is_granted(cuMemAllocAsync(&slot->address, slot->bytes, user->stream), "cuMemAllocAsync");
    case POOLED:
        return is_granted(cuMemAllocFromPoolAsync(&slot->address, slot->bytes, pool, user->stream), "cuMemAllocFromPoolAsync");
    case PHYSICAL: return take_physical(user, slot);
    default: return take_graph(slot);
    }
}

static void give_back(struct user *user, struct slot *slot) {
    switch (slot->kind) {
    case PLAIN: case PITCHED: case MANAGED: CHECK(cuMemFree_v2(slot->address)); break;
    case ARRAYED: CHECK(cuArrayDestroy(slot->handle)); break;
    case MIPMAPPED: CHECK(cuMipmappedArrayDestroy(slot->handle)); break;
    case ORDERED: case POOLED:
        if (any(user, 4)) CHECK(cuMemFreeAsync(slot->address, user->stream));
        else CHECK(cuMemFree_v2(slot->address));
        break;
    case PHYSICAL:
        CHECK(cuMemUnmap(slot->address, slot->bytes));
        CHECK(cuMemAddressFree(slot->address, slot->bytes));
        if (slot->physical) CHECK(cuMemRelease(slot->physical));
        break;
    case GRAPHED:
        CHECK(cuGraphDestroy(slot->handle));
        CHECK(cuGraphExecDestroy(slot->exec));
        break;
    }
    *slot = (struct slot){0};
}

/* One allocation or free; only of kind `only`, unless that is 0. */
static void step(struct user *user, int without_managed, int only) {
    struct slot *slot = &user->slots[any(user, SLOTS)];
    if (slot->kind != NONE) {
        give_back(user, slot);
        return;
    }
    int kind = only ? only : 1 + (int)any(user, KINDS - 1);
    if (kind == MANAGED && without_managed) kind = PLAIN;
    if (take(user, slot, kind)) slot->kind = kind;
    else *slot = (struct slot){0};
    if (any(user, 8) == 0) CHECK(cuStreamSynchronize(user->stream));
}

static void finish(struct user *user) {
    for (int i = 0; i < SLOTS; i++) give_back(user, &user->slots[i]);
    CHECK(cuStreamSynchronize(user->stream));
}

static void start(struct user *user, uint64_t seed) {
    CHECK(cuCtxSetCurrent(context));
    user->seed = seed * 7919 + 17;
    CHECK(cuStreamCreate(&user->stream, 0));
}

static void say(const char *what) {
    printf("%s granted=%lu refused=%lu\n", what, granted, refused);
    fflush(stdout);
}

static void mixed(uint64_t seed, int count, int only) {
    static struct user user;
    char line[8];
    start(&user, seed);
    for (int i = 0; i < count && fgets(line, sizeof line, stdin); i++) {
        for (int j = 0; j < 40; j++) step(&user, 0, only);
        CHECK(cuCtxSynchronize());
        puts("look");
        fflush(stdout);
    }
    if (!fgets(line, sizeof line, stdin)) return;
    finish(&user);
    CHECK(cuMemPoolDestroy(pool));
    say("freed");
    while (fgets(line, sizeof line, stdin)) {}
}

static void *storm_thread(void *argument) {
    static _Thread_local struct user user;
    start(&user, (uint64_t)(uintptr_t)argument);
    /* Without managed memory: it is in an arena that all processes of the software GPU share, and
     * that is smaller than the device. */
    while (!is_over) step(&user, 1, 0);
    finish(&user);
    return NULL;
}

static void storm(uint64_t seed, int count) {
    pthread_t threads[64];
    struct pollfd end = {0, POLLIN, 0};
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, storm_thread, (void *)(uintptr_t)(seed * 64 + i));
    puts("ready");
    fflush(stdout);
    poll(&end, 1, -1);
    is_over = 1;
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    CHECK(cuMemPoolDestroy(pool));
    CHECK(cuCtxSynchronize());
    say("freed");
}

static void fill(size_t early_total, int ordinal) {
    CUdeviceptr blocks[1024];
    size_t free_bytes, total, device_total;
    int count = 0;
    void *pinned;
    /* Host memory must not count as device memory. */
    CHECK(cuMemHostAlloc(&pinned, 64 * MIB, 0));
    CHECK(cuDeviceTotalMem_v2(&device_total, ordinal));
    CHECK(cuMemGetInfo_v2(&free_bytes, &total));
    printf("early_total=%zu total=%zu device_total=%zu free=%zu\n", early_total, total, device_total, free_bytes);
    while (count < 1024 && is_granted(cuMemAlloc_v2(&blocks[count], 64 * MIB), "cuMemAlloc")) count++;
    CHECK(cuMemGetInfo_v2(&free_bytes, &total));
    printf("blocks=%d left=%zu\n", count, free_bytes);
    for (int i = 0; i < count; i++) CHECK(cuMemFree_v2(blocks[i]));
    CHECK(cuMemGetInfo_v2(&free_bytes, &total));
    printf("free_again=%zu\n", free_bytes);
}

static void load(int mib) {
    CUdeviceptr address;
    char line[8];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        puts(is_granted(cuMemAlloc_v2(&address, (size_t)mib * MIB), "cuMemAlloc") ? "granted" : "refused");
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    PoolProps properties = {.type = 1, .location = {1, 0}};
    if (argc < 5) return 2;
    size_t early_total;
    int is_fill = !strcmp(argv[1], "fill"), ordinal = is_fill ? atoi(argv[3]) : 0;
    CHECK(cuInit(0));
    CHECK(cuDeviceTotalMem_v2(&early_total, ordinal));
    context = start_context();
    CHECK(cuMemPoolCreate(&pool, &properties));
    uint64_t seed = strtoull(argv[2], NULL, 10);
    int count = atoi(argv[3]), threads = atoi(argv[4]);
    if (!strcmp(argv[1], "mixed")) mixed(seed, count, threads);
    else if (!strcmp(argv[1], "storm")) storm(seed, threads);
    else if (!strcmp(argv[1], "load")) load(count);
    else {
        if (ordinal) CHECK(cuCtxCreate_v2(&context, 0, ordinal));
        fill(early_total, ordinal);
    }
    return 0;
}
