/* completion: the delay until the host learns that a kernel has ended, by an event and by a 64-bit
 * value that the GPU writes, and the cost of each.
 *
 *   --ptx FILE  --rounds N
 *
 * A kernel of 200 us is followed by one that stores a number into host memory; the time at which
 * the host reads that number is the reference. Next in the stream is an event, which the host
 * queries from then on, or a cuStreamWriteValue64, whose value it reads from then on. Then launches
 * are timed alone, beside a thread that queries an event every 5 us, and beside a thread that reads
 * a value every 5 us. */
#include "probe.h"

#include <pthread.h>

enum { ROUNDS_MAX = 4096, QUERIES = 20, LAUNCHES = 2000, LOOK_NS = 5000, PACE_NS = 10000, MAPPED = 2 };
static const uint64_t ARRIVES_NS = 50000000;

static const char tell_ptx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry tell(.param .u64 flag, .param .u64 value)\n{\n  .reg .b64 %d<2>;\n"
    "  ld.param.u64 %d0, [flag];\n  ld.param.u64 %d1, [value];\n  cvta.to.global.u64 %d0, %d0;\n"
    "  st.volatile.global.u64 [%d0], %d1;\n  membar.sys;\n  ret;\n}\n";

static struct spin spin;
static CUstream stream;
static volatile uint64_t *words;
static CUdeviceptr device_words;
static unsigned (*write_value)(CUstream, CUdeviceptr, uint64_t, unsigned);
static volatile int is_over, looks_at;
static CUevent pending;

static void *look(void *unused) {
    uint64_t seen = 0;
    for (uint64_t due = now_ns(); !is_over; due += LOOK_NS) {
        while (now_ns() < due && !is_over) {}
        if (looks_at == 1) cu.EventQuery(pending);
        if (looks_at == 2) seen += words[1];
    }
    return seen == 1 ? unused : NULL;
}

static double launch_ns(int at) {
    static double times[LAUNCHES];
    pthread_t thread;
    is_over = 0;
    looks_at = at;
    if (at != 0) pthread_create(&thread, NULL, look, NULL);
    uint64_t due = now_ns();
    for (int i = 0; i < LAUNCHES; i++) {
        while (now_ns() < due) {}
        uint64_t before = now_ns();
        CHECK(spin_launch(&spin, 1, 1, stream, NULL));
        times[i] = (double)(now_ns() - before);
        due += PACE_NS;
        if (i % 200 == 199) {
            CHECK(cu.EventRecord(pending, stream));
            CHECK(cu.StreamSynchronize(stream));
            due = now_ns();
        }
    }
    is_over = 1;
    if (at != 0) pthread_join(thread, NULL);
    return median_of(times, LAUNCHES);
}

/* Waits until the word has the number: the time of that, or 0 after ARRIVES_NS. */
static uint64_t seen_ns(int word, uint64_t number) {
    uint64_t begin = now_ns(), now;
    do {
        now = now_ns();
        if (words[word] == number) return now;
    } while (now < begin + ARRIVES_NS);
    return 0;
}

static void print_times(const char *name, double *times, size_t count) {
    if (count == 0) return;
    qsort(times, count, sizeof *times, by_size);
    printf("\"%s\": {\"p50\": %.0f, \"p90\": %.0f, \"p99\": %.0f}, ", name, quantile(times, count, 0.5),
           quantile(times, count, 0.9), quantile(times, count, 0.99));
}

int main(int count, char **arguments) {
    static double after[2][ROUNDS_MAX], marking[2][ROUNDS_MAX], queries[QUERIES * ROUNDS_MAX];
    size_t seen[2] = {0, 0}, marked[2] = {0, 0}, asked = 0;
    int rounds = (int)number(count, arguments, "--rounds", "200");
    unsigned write_result = 500, (*host_alloc)(void **, size_t, unsigned), (*device_pointer)(CUdeviceptr *, void *, unsigned);
    CUmodule module;
    CUfunction tell;
    void *memory;
    if (rounds < 1 || rounds > ROUNDS_MAX) return 2;
    spin_open(&spin, argument(count, arguments, "--ptx", "spin.ptx"));
    *(void **)&host_alloc = find("cuMemHostAlloc");
    *(void **)&device_pointer = find("cuMemHostGetDevicePointer_v2");
    *(void **)&write_value = find("cuStreamWriteValue64_v2");
    unsigned blocks = (unsigned)spin.sms * 8;
    spin_calibrate(&spin, blocks);
    unsigned loops = spin_loops(&spin, 200);
    CHECK(cu.ModuleLoadData(&module, tell_ptx));
    CHECK(cu.ModuleGetFunction(&tell, module, "tell"));
    CHECK(host_alloc(&memory, 4096, MAPPED));
    CHECK(device_pointer(&device_words, memory, 0));
    CHECK(cu.StreamCreateWithPriority(&stream, NON_BLOCKING, 0));
    CHECK(cu.EventCreate(&pending, NO_TIMING));
    words = memory;
    words[0] = words[1] = 0;
    say("ready");
    wait_for_line();
    if (write_value != NULL) write_result = write_value(stream, device_words + 8, 1, 0);
    CHECK(cu.StreamSynchronize(stream));
    int arrives = write_result == 0 && words[1] == 1, computes = 1;
    for (int round = 1; round <= rounds && computes; round++) {
        int by_word = round & 1 & arrives;
        uint64_t value = (uint64_t)round + 1000;
        void *parameters[] = {&device_words, &value};
        CHECK(spin_launch(&spin, blocks, loops, stream, NULL));
        CHECK(cu.LaunchKernel(tell, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
        uint64_t before = now_ns();
        if (by_word) CHECK(write_value(stream, device_words + 8, value, 0));
        else CHECK(cu.EventRecord(pending, stream));
        marking[by_word][marked[by_word]++] = (double)(now_ns() - before);
        for (int i = 0; i < QUERIES && !by_word && words[0] != value; i++) {
            before = now_ns();
            if (cu.EventQuery(pending) == NOT_READY) queries[asked++] = (double)(now_ns() - before);
        }
        uint64_t reference = seen_ns(0, value), learnt = 0;
        computes = reference != 0;
        if (!computes) break;
        if (by_word) learnt = seen_ns(1, value);
        else while (cu.EventQuery(pending) == NOT_READY) {}
        if (!by_word) learnt = now_ns();
        if (learnt != 0) after[by_word][seen[by_word]++] = (double)(learnt - reference);
        CHECK(cu.StreamSynchronize(stream));
    }
    CHECK(cu.StreamSynchronize(stream));
    printf("{\"kernels_compute\": %s, \"write_value_result\": %u, \"write_value_arrives\": %s, ", computes ? "true" : "false",
           write_result, arrives ? "true" : "false");
    if (computes) {
        print_times("event_after_ns", after[0], seen[0]);
        print_times("word_after_ns", after[1], seen[1]);
    }
    print_times("event_record_ns", marking[0], marked[0]);
    print_times("write_value_ns", marking[1], marked[1]);
    print_times("event_query_ns", queries, asked);
    double alone = launch_ns(0), events = launch_ns(1), reads = launch_ns(2);
    printf("\"launch_ns\": {\"alone\": %.0f, \"beside event queries\": %.0f, \"beside reads\": %.0f}}\n", alone, events, reads);
    fflush(stdout);
    wait_for_end();
    return 0;
}
