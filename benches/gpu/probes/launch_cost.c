/* launch_cost: the duration of a call through Pillion's hooks and of a direct call, in alternating
 * blocks of one process.
 *
 *   --ptx FILE  --call launch|alloc  --pairs N (of blocks)  --block N (calls)  --default-stream
 *
 * Direct calls use the functions that libc's own dlsym finds, which no preload replaces; hooked
 * calls those that this program's dlsym finds. Without the preload both are the driver's, and the
 * difference is noise: the control. Blocks run in the order ABBA, so that drift affects both sides
 * alike. Each block ends with an untimed synchronisation; calls start 5 us apart. */
#include "probe.h"

enum { SAMPLES_MAX = 1 << 20, WARM_UP = 500, PACE_NS = 5000, BYTES = 512 };

static void *(*libc_dlsym)(void *, const char *);
static unsigned (*launches[2])(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                               void **, void **);
static unsigned (*allocations[2])(CUdeviceptr *, size_t);
static unsigned (*frees[2])(CUdeviceptr);
static double samples[2][SAMPLES_MAX];

static void find_doors(void) {
    static const char *versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    for (int i = 0; i < 3 && libc_dlsym == NULL; i++) *(void **)&libc_dlsym = dlvsym(RTLD_DEFAULT, "dlsym", versions[i]);
    if (libc_dlsym == NULL) exit(93);
    *(void **)&launches[0] = libc_dlsym(driver, "cuLaunchKernel");
    *(void **)&launches[1] = find("cuLaunchKernel");
    *(void **)&allocations[0] = libc_dlsym(driver, "cuMemAlloc_v2");
    *(void **)&allocations[1] = find("cuMemAlloc_v2");
    *(void **)&frees[0] = libc_dlsym(driver, "cuMemFree_v2");
    *(void **)&frees[1] = find("cuMemFree_v2");
}

static const char *file_of(void *address) {
    Dl_info info;
    if (dladdr(address, &info) == 0 || info.dli_fname == NULL) return "";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash == NULL ? info.dli_fname : slash + 1;
}

static struct spin spin;
static CUstream stream;

static void make_call(int side, int is_launch) {
    if (is_launch) {
        unsigned loops = 1, more = 0, per_loop = PER_LOOP, blocks = 1, mask = UNITS - 1, first = 0;
        void *parameters[] = {&spin.results, &spin.buffer, &loops, &more, &per_loop, &blocks, &mask, &first};
        CHECK(launches[side](spin.function, 1, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL));
    } else {
        CUdeviceptr address;
        CHECK(allocations[side](&address, BYTES));
        CHECK(frees[side](address));
    }
}

int main(int count, char **arguments) {
    int pairs = (int)number(count, arguments, "--pairs", "20"), block = (int)number(count, arguments, "--block", "200");
    int is_launch = strcmp(argument(count, arguments, "--call", "launch"), "launch") == 0, on_default = 0;
    for (int i = 1; i < count; i++) on_default |= strcmp(arguments[i], "--default-stream") == 0;
    if ((long)pairs * block > SAMPLES_MAX) return 2;
    spin_open(&spin, argument(count, arguments, "--ptx", "spin.ptx"));
    if (!on_default) CHECK(cu.StreamCreateWithPriority(&stream, NON_BLOCKING, 0));
    find_doors();
    for (int i = 0; i < WARM_UP; i++) make_call(i & 1, is_launch);
    CHECK(cu.CtxSynchronize());
    say("ready");
    wait_for_line();
    double *differences = calloc((size_t)pairs, sizeof *differences);
    size_t taken[2] = {0, 0};
    for (int pair = 0; pair < pairs; pair++) {
        double medians[2];
        for (int turn = 0; turn < 2; turn++) {
            int side = (pair ^ turn) & 1;
            double *begin = &samples[side][taken[side]];
            uint64_t due = now_ns();
            for (int i = 0; i < block; i++) {
                while (now_ns() < due) {}
                uint64_t before = now_ns();
                make_call(side, is_launch);
                samples[side][taken[side]++] = (double)(now_ns() - before);
                due += PACE_NS;
            }
            CHECK(cu.CtxSynchronize());
            medians[side] = median_of(begin, (size_t)block);
        }
        differences[pair] = medians[1] - medians[0];
    }
    double medians[2] = {median_of(samples[0], taken[0]), median_of(samples[1], taken[1])};
    qsort(differences, (size_t)pairs, sizeof *differences, by_size);
    printf("{\"bare_ns\": %.1f, \"with_ns\": %.1f, \"cost_ns\": %.1f, \"cost_p10_ns\": %.1f, \"cost_p90_ns\": %.1f, "
           "\"calls_with\": %zu, \"bare_file\": \"%s\", \"with_file\": \"%s\"}\n", medians[0], medians[1],
           medians[1] - medians[0], quantile(differences, (size_t)pairs, 0.1), quantile(differences, (size_t)pairs, 0.9),
           taken[1] + WARM_UP / 2, file_of(*(void **)(is_launch ? (void *)&launches[0] : (void *)&allocations[0])),
           file_of(*(void **)(is_launch ? (void *)&launches[1] : (void *)&allocations[1])));
    fflush(stdout);
    wait_for_end();
    return 0;
}
