/* spinner: launches kernels of one length without pause, as a best-effort job does.
 *
 *   --ptx FILE  --us LENGTH  --waves W (grid: W times the blocks that fill the device)
 *   --depth N (launches in flight)
 *   --priority least|greatest|none (of its stream)  --seconds S (or until standard input ends)
 *
 * Signals have their default disposition. */
#include "probe.h"

enum { DEPTH_MAX = 64, BLOCKS_PER_SM = 8 };

int main(int count, char **arguments) {
    struct spin spin;
    CUstream stream = NULL;
    CUevent events[DEPTH_MAX];
    int least, greatest, depth = (int)number(count, arguments, "--depth", "4");
    const char *asked = argument(count, arguments, "--priority", "none");
    double us = number(count, arguments, "--us", "1000"), seconds = number(count, arguments, "--seconds", "1e9");
    if (depth < 1 || depth > DEPTH_MAX) return 2;
    spin_open(&spin, argument(count, arguments, "--ptx", "spin.ptx"));
    unsigned blocks = (unsigned)(number(count, arguments, "--waves", "1") * spin.sms * BLOCKS_PER_SM);
    spin_calibrate(&spin, blocks);
    unsigned loops = spin_loops(&spin, us);
    double length_us = spin_us(&spin, blocks, loops);
    CHECK(cu.CtxGetStreamPriorityRange(&least, &greatest));
    int priority = strcmp(asked, "greatest") == 0 ? greatest : strcmp(asked, "least") == 0 ? least : 0;
    CHECK(cu.StreamCreateWithPriority(&stream, NON_BLOCKING, priority));
    for (int i = 0; i < depth; i++) CHECK(cu.EventCreate(&events[i], NO_TIMING));
    say("ready");
    wait_for_line();
    uint64_t begin = now_ns(), launched = 0, completed = 0;
    while ((double)(now_ns() - begin) < seconds * 1e9 && !is_told_to_end()) {
        if (launched - completed == (uint64_t)depth) CHECK(cu.EventSynchronize(events[completed++ % (uint64_t)depth]));
        CHECK(spin_launch(&spin, blocks, loops, stream, NULL));
        CHECK(cu.EventRecord(events[launched++ % (uint64_t)depth], stream));
    }
    CHECK(cu.StreamSynchronize(stream));
    double elapsed = (double)(now_ns() - begin) / 1e9;
    uint64_t told[3];
    spin_told(&spin, told);
    printf("{\"launches\": %lu, \"per_s\": %.6f, \"elapsed_s\": %.6f, \"kernel_us\": %.3f, \"blocks\": %u, "
           "\"threads_wrong\": %lu}\n", (unsigned long)launched, (double)launched / elapsed, elapsed, length_us, blocks,
           (unsigned long)told[2]);
    fflush(stdout);
    wait_for_end();
    return 0;
}
