/* fill: allocates device memory in one way until an allocation fails, frees it all, and does so
 * again.
 *
 *   --ptx FILE  --kind plain|async|physical|managed  --chunk-mib N  --most-mib N (allocates no more
 *   than that)  --hold
 *
 * With --hold it allocates once and keeps the memory until its standard input ends. */
#include "probe.h"

enum { CHUNKS_MAX = 1 << 16, PINNED = 1, ON_DEVICE = 1, GLOBAL = 1 };

struct properties { int type, handles; struct { int type, id; } location; void *metadata; unsigned char flags[8]; };

static unsigned (*alloc_async)(CUdeviceptr *, size_t, CUstream), (*free_async)(CUdeviceptr, CUstream);
static unsigned (*create)(uint64_t *, size_t, const struct properties *, unsigned long long), (*release)(uint64_t);
static unsigned (*managed)(CUdeviceptr *, size_t, unsigned), (*mem_info)(size_t *, size_t *);
static uint64_t taken[CHUNKS_MAX];

static unsigned take(char kind, uint64_t *at, size_t bytes) {
    struct properties properties = {.type = PINNED, .location = {ON_DEVICE, 0}};
    switch (kind) {
    case 'a': return alloc_async(at, bytes, NULL);
    case 'p': return cu.MemAlloc(at, bytes);
    case 'm': return managed(at, bytes, GLOBAL);
    default: return create(at, bytes, &properties, 0);
    }
}

static unsigned give_back(char kind, uint64_t at) {
    return kind == 'a' ? free_async(at, NULL) : kind == 'c' ? release(at) : cu.MemFree(at);
}

static size_t fill(char kind, size_t bytes, size_t most, unsigned *refusal) {
    size_t count = 0;
    *refusal = 0;
    while (count < CHUNKS_MAX && (count + 1) * bytes <= most && (*refusal = take(kind, &taken[count], bytes)) == 0) count++;
    CHECK(cu.CtxSynchronize());
    return count;
}

int main(int count, char **arguments) {
    struct spin spin;
    size_t available, total, bytes = (size_t)number(count, arguments, "--chunk-mib", "16") << 20;
    size_t most = (size_t)number(count, arguments, "--most-mib", "8192") << 20;
    const char *name = argument(count, arguments, "--kind", "plain");
    char kind = strcmp(name, "physical") == 0 ? 'c' : name[0];
    unsigned refusals[2];
    int holds = 0;
    for (int i = 1; i < count; i++) holds |= strcmp(arguments[i], "--hold") == 0;
    spin_open(&spin, argument(count, arguments, "--ptx", "spin.ptx"));
    *(void **)&alloc_async = find("cuMemAllocAsync");
    *(void **)&free_async = find("cuMemFreeAsync");
    *(void **)&create = find("cuMemCreate");
    *(void **)&release = find("cuMemRelease");
    *(void **)&managed = find("cuMemAllocManaged");
    *(void **)&mem_info = find("cuMemGetInfo_v2");
    say("ready");
    wait_for_line();
    CHECK(mem_info(&available, &total));
    size_t first = fill(kind, bytes, most, &refusals[0]);
    size_t second = 0;
    refusals[1] = refusals[0];
    if (!holds) {
        for (size_t i = 0; i < first; i++) CHECK(give_back(kind, taken[i]));
        CHECK(cu.CtxSynchronize());
        second = fill(kind, bytes, most, &refusals[1]);
        for (size_t i = 0; i < second; i++) CHECK(give_back(kind, taken[i]));
        CHECK(cu.CtxSynchronize());
    }
    printf("{\"granted_bytes\": %zu, \"again_bytes\": %zu, \"refused_with\": %u, \"refused_again_with\": %u, "
           "\"seen_total_bytes\": %zu}\n", first * bytes, second * bytes, refusals[0], refusals[1], total);
    fflush(stdout);
    wait_for_end();
    return 0;
}
