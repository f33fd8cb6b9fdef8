/* device: sharing of the GPU by time and by SMs, and the steps in which a memory pool grows.
 *
 *   --ptx FILE  --seconds S  --loops N (of the kernel that is timed on part of the SMs; 0: as many
 *   as last a millisecond on all SMs)
 *
 * `shares`: duration of a kernel that fills the GPU, in green contexts of 8 to 120 SMs, alone and
 *   while another green context uses the remaining SMs.
 * `full_us`: its duration on all SMs that this process may use (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE).
 * `slices`: kernels of 20 us one after the other for S seconds: if another process works, the
 *   periods in which this one has the GPU, and those in which it has not.
 * `pool`: the bytes that the default pool has reserved after each allocation. */
#include "probe.h"

enum { SM_RESOURCE = 1, DEFAULT_STREAM = 1, RESOURCE_BYTES = 144, SM_COUNT_AT = 96, SHORT_US = 20, GAPS_MAX = 100000, RESERVED = 5 };
static const double GAP_MS = 0.3;

/* CUdevResource: a type and padding, then for SMs their number. */
struct resource { unsigned words[RESOURCE_BYTES / 4]; };

static struct spin spin;
static unsigned blocks;

static double timed_us(CUstream stream, unsigned loops) {
    CUevent begin, end;
    double least = 1e12;
    CHECK(cu.EventCreate(&begin, 0));
    CHECK(cu.EventCreate(&end, 0));
    for (int i = 0; i < 5; i++) {
        float ms;
        CHECK(cu.EventRecord(begin, stream));
        CHECK(spin_launch(&spin, blocks, loops, stream, NULL));
        CHECK(cu.EventRecord(end, stream));
        CHECK(cu.EventSynchronize(end));
        CHECK(cu.EventElapsedTime(&ms, begin, end));
        if (ms * 1e3 < least) least = ms * 1e3;
    }
    return least;
}

static unsigned green_stream(struct resource *part, CUdevice device, CUstream *stream);

static void shares(CUdevice device, unsigned loops) {
    static const unsigned asked[] = {8, 16, 32, 64, 96, 120};
    unsigned (*of_device)(CUdevice, struct resource *, unsigned);
    unsigned (*split)(struct resource *, unsigned *, const struct resource *, struct resource *, unsigned, unsigned);
    *(void **)&of_device = find("cuDeviceGetDevResource");
    *(void **)&split = find("cuDevSmResourceSplitByCount");
    printf("\"shares\": [");
    for (size_t i = 0; of_device && split && i < sizeof asked / sizeof *asked; i++) {
        struct resource all, part, rest;
        unsigned groups = 1, result = of_device(device, &all, SM_RESOURCE);
        CUstream mine = NULL, other = NULL;
        if (result == 0) result = split(&part, &groups, &all, &rest, 0, asked[i]);
        if (result == 0) result = green_stream(&part, device, &mine);
        if (result == 0) result = green_stream(&rest, device, &other);
        printf("%s{\"asked\": %u, \"result\": %u", i == 0 ? "" : ", ", asked[i], result);
        if (result == 0) {
            double alone_us = timed_us(mine, loops);
            for (int k = 0; k < 40; k++) CHECK(spin_launch(&spin, blocks, loops, other, NULL));
            double beside_us = timed_us(mine, loops);
            printf(", \"sms\": %u, \"rest\": %u, \"alone_us\": %.1f, \"beside_us\": %.1f", part.words[SM_COUNT_AT / 4],
                   rest.words[SM_COUNT_AT / 4], alone_us, beside_us);
            CHECK(cu.CtxSynchronize());
            CHECK(cu.StreamSynchronize(other));
        }
        printf("}");
    }
    printf("], ");
}

static unsigned green_stream(struct resource *part, CUdevice device, CUstream *stream) {
    unsigned (*describe)(void **, struct resource *, unsigned), (*create)(void **, void *, CUdevice, unsigned);
    unsigned (*new_stream)(CUstream *, void *, unsigned, int);
    void *description, *context;
    *(void **)&describe = find("cuDevResourceGenerateDesc");
    *(void **)&create = find("cuGreenCtxCreate");
    *(void **)&new_stream = find("cuGreenCtxStreamCreate");
    if (!describe || !create || !new_stream) return 500;
    unsigned result = describe(&description, part, 1);
    if (result == 0) result = create(&context, description, device, DEFAULT_STREAM);
    if (result == 0) result = new_stream(stream, context, NON_BLOCKING, 0);
    return result;
}

static void print_ms(const char *name, double *times, size_t count) {
    qsort(times, count, sizeof *times, by_size);
    printf("\"%s\": {\"count\": %zu, \"p10\": %.3f, \"p50\": %.3f, \"p90\": %.3f}, ", name, count, quantile(times, count, 0.1),
           quantile(times, count, 0.5), quantile(times, count, 0.9));
}

static void slices(double seconds) {
    static double on[GAPS_MAX], off[GAPS_MAX];
    CUstream stream;
    size_t gaps = 0;
    unsigned loops = spin_loops(&spin, SHORT_US);
    CHECK(cu.StreamCreateWithPriority(&stream, NON_BLOCKING, 0));
    uint64_t begin = now_ns(), since = begin, before = begin;
    while ((double)(before - begin) < seconds * 1e9 && gaps < GAPS_MAX) {
        CHECK(spin_launch(&spin, blocks, loops, stream, NULL));
        CHECK(cu.StreamSynchronize(stream));
        uint64_t now = now_ns();
        if ((double)(now - before) / 1e6 > GAP_MS) {
            on[gaps] = (double)(before - since) / 1e6;
            off[gaps++] = (double)(now - before) / 1e6;
            since = now;
        }
        before = now;
    }
    printf("\"slices\": {");
    print_ms("on_ms", on, gaps);
    print_ms("off_ms", off, gaps);
    printf("\"seconds\": %.2f}, ", seconds);
}

static void pool(CUdevice device) {
    static const size_t mib[] = {1, 1, 40, 1, 200};
    unsigned (*of_device)(void **, CUdevice), (*attribute)(void *, int, void *), (*alloc)(CUdeviceptr *, size_t, CUstream);
    void *pool;
    CUdeviceptr at;
    *(void **)&of_device = find("cuDeviceGetDefaultMemPool");
    *(void **)&attribute = find("cuMemPoolGetAttribute");
    *(void **)&alloc = find("cuMemAllocAsync");
    printf("\"pool\": [");
    if (of_device && attribute && alloc && of_device(&pool, device) == 0)
        for (size_t i = 0; i < sizeof mib / sizeof *mib; i++) {
            uint64_t reserved = 0;
            CHECK(alloc(&at, mib[i] << 20, NULL));
            CHECK(cu.CtxSynchronize());
            CHECK(attribute(pool, RESERVED, &reserved));
            printf("%s{\"allocated_mib\": %zu, \"reserved_mib\": %.3f}", i == 0 ? "" : ", ", mib[i], (double)reserved / (1 << 20));
        }
    printf("]");
}

int main(int count, char **arguments) {
    CUdevice device;
    spin_open(&spin, argument(count, arguments, "--ptx", "spin.ptx"));
    CHECK(cu.DeviceGet(&device, 0));
    blocks = (unsigned)spin.sms * 8;
    spin_calibrate(&spin, blocks);
    unsigned loops = (unsigned)number(count, arguments, "--loops", "0");
    if (loops == 0) loops = spin_loops(&spin, 1000);
    say("ready");
    wait_for_line();
    printf("{\"loops\": %u, \"sms\": %d, \"full_us\": %.1f, ", loops, spin.sms, timed_us(NULL, loops));
    slices(number(count, arguments, "--seconds", "1"));
    shares(device, loops);
    pool(device);
    say("}");
    wait_for_end();
    return 0;
}
