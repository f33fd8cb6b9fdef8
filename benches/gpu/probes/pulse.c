/* pulse: short requests, as in a high-priority job: kernels one after the other, and a wait for the
 * last.
 *
 *   --ptx FILE  --us LENGTH of each kernel  --kernels N in a request  --rate R per second (Poisson;
 *   0: each request follows the previous one)
 *   --seconds S (or until standard input ends)  --seed N  --priority least|greatest|none (of its
 *   stream)  --attribute (launches have the priority attribute, greatest)
 *   --beside-us LENGTH  --beside-priority least (kernels of that length without pause on another
 *   stream of the process, and that stream's priority)
 *
 * A latency runs from the due time of the request. Equal seeds give equal arrivals. */
#include "probe.h"

#include <math.h>
#include <pthread.h>

enum { REQUESTS_MAX = 1 << 20, BLOCKS_PER_SM = 8, BESIDE_WAVES = 4, BESIDE_DEPTH = 2 };

/* The load on the other stream. */
struct beside { struct spin *spin; CUcontext context; CUstream stream; unsigned blocks, loops; volatile int is_over; };

static uint64_t seed;

/* Uniform in (0, 1]. */
static double uniform(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return ((double)(seed >> 11) + 1) / 9007199254740992.0;
}

static void *run_beside(void *argument) {
    struct beside *beside = argument;
    CUevent events[BESIDE_DEPTH];
    uint64_t launched = 0;
    CHECK(cu.CtxSetCurrent(beside->context));
    for (int i = 0; i < BESIDE_DEPTH; i++) CHECK(cu.EventCreate(&events[i], NO_TIMING));
    while (!beside->is_over) {
        CUevent event = events[launched % BESIDE_DEPTH];
        if (launched++ >= BESIDE_DEPTH) CHECK(cu.EventSynchronize(event));
        CHECK(spin_launch(beside->spin, beside->blocks, beside->loops, beside->stream, NULL));
        CHECK(cu.EventRecord(event, beside->stream));
    }
    return NULL;
}

int main(int count, char **arguments) {
    struct spin spin;
    CUstream stream;
    int least, greatest, has_attribute = 0;
    for (int i = 1; i < count; i++) has_attribute |= strcmp(arguments[i], "--attribute") == 0;
    const char *asked = argument(count, arguments, "--priority", "none");
    double us = number(count, arguments, "--us", "100"), seconds = number(count, arguments, "--seconds", "5");
    double rate = number(count, arguments, "--rate", "50");
    int kernels = (int)number(count, arguments, "--kernels", "1");
    seed = (uint64_t)number(count, arguments, "--seed", "1") * 2 + 1;
    spin_open(&spin, argument(count, arguments, "--ptx", "spin.ptx"));
    unsigned blocks = (unsigned)(number(count, arguments, "--waves", "1") * spin.sms * BLOCKS_PER_SM);
    spin_calibrate(&spin, blocks);
    unsigned loops = spin_loops(&spin, us);
    double length_us = spin_us(&spin, blocks, loops);
    CHECK(cu.CtxGetStreamPriorityRange(&least, &greatest));
    int priority = strcmp(asked, "greatest") == 0 ? greatest : strcmp(asked, "least") == 0 ? least : 0;
    CHECK(cu.StreamCreateWithPriority(&stream, NON_BLOCKING, priority));
    if (has_attribute) {
        unsigned result = cu.LaunchKernelEx == NULL ? 500 : spin_launch(&spin, blocks, 1, stream, &greatest);
        if (result != 0) {
            printf("{\"refused\": %u}\n", result);
            return 0;
        }
    }
    struct beside beside = {.spin = &spin, .blocks = (unsigned)spin.sms * BLOCKS_PER_SM * BESIDE_WAVES};
    double beside_us = number(count, arguments, "--beside-us", "0");
    pthread_t thread;
    if (beside_us > 0) {
        int is_least = strcmp(argument(count, arguments, "--beside-priority", "none"), "least") == 0;
        unsigned (*current)(CUcontext *);
        *(void **)&current = find("cuCtxGetCurrent");
        CHECK(current(&beside.context));
        /* The calibration holds for one wave; BESIDE_WAVES waves take that many times as long. */
        beside.loops = spin_loops(&spin, beside_us / BESIDE_WAVES);
        CHECK(cu.StreamCreateWithPriority(&beside.stream, NON_BLOCKING, is_least ? least : 0));
    }
    double *latencies_ms = calloc(REQUESTS_MAX, sizeof *latencies_ms);
    say("ready");
    wait_for_line();
    if (beside_us > 0 && pthread_create(&thread, NULL, run_beside, &beside) != 0) return 2;
    uint64_t begin = now_ns(), due = begin, launched = 0;
    size_t requests = 0;
    while (requests < REQUESTS_MAX) {
        due = rate > 0 ? due + (uint64_t)(-log(uniform()) / rate * 1e9) : now_ns();
        if ((double)(due - begin) > seconds * 1e9) break;
        if (is_told_to_end()) break;
        sleep_until_ns(due);
        for (int i = 0; i < kernels; i++) CHECK(spin_launch(&spin, blocks, loops, stream, has_attribute ? &greatest : NULL));
        CHECK(cu.StreamSynchronize(stream));
        launched += (uint64_t)kernels;
        latencies_ms[requests++] = (double)(now_ns() - due) / 1e6;
    }
    beside.is_over = 1;
    if (beside_us > 0) pthread_join(thread, NULL);
    uint64_t told[3];
    spin_told(&spin, told);
    printf("{\"kernel_us\": %.3f, \"launches\": %lu, \"elapsed_s\": %.6f, \"threads_wrong\": %lu, \"latencies_ms\": [",
           length_us, (unsigned long)launched, (double)(now_ns() - begin) / 1e9, (unsigned long)told[2]);
    for (size_t i = 0; i < requests; i++) printf("%s%.4f", i == 0 ? "" : ", ", latencies_ms[i]);
    say("]}");
    wait_for_end();
    return 0;
}
