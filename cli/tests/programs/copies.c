/* copies SEED MODE: copies between host and device, of random lengths and places, long and short, in every form. It prints what
 * each call returned and a sum of the bytes that arrived, then what it asked for.
 *
 *   alone   one thread uses the driver
 *   two     another thread has used it before
 *   late    another thread uses it for the first time while copies are made, and looks whether it sees half of one
 *   once    one copy of 8 MiB; SIGUSR1 is handled
 *   again   the same until standard input ends
 *   told    one copy of 8 MiB, while which SIGUSR1 is handled; another thread uses the driver for the first time on SIGUSR2
 */
#include "cuda_mem.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

typedef void *CUgraph, *CUgraphNode;
CUresult cuStreamBeginCapture_v2(CUstream, int);
CUresult cuStreamEndCapture(CUstream, CUgraph *);
CUresult cuGraphGetNodes(CUgraph, CUgraphNode *, size_t *);
CUresult cuGraphDestroy(CUgraph);

enum { MIB = 1 << 20, BYTES = 9 * MIB, LOW_BYTES = 4 * MIB, OPERATIONS = 60, FORMS = 12, RELAXED = 2 };

static uint64_t state;

static uint64_t drawn(uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
}

static uint64_t sum(const unsigned char *bytes, size_t count) {
    uint64_t sum = 1469598103934665603u;
    for (size_t i = 0; i < count; i++) sum = (sum ^ bytes[i]) * 1099511628211u;
    return sum;
}

static void fill(unsigned char *bytes, size_t count, uint64_t word) {
    for (size_t i = 0; i < count; i++) {
        word = word * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (unsigned char)(word >> 56);
    }
}

/* Around the lengths at which a copy may be made otherwise, none and odd ones among them. */
static size_t length(size_t most) {
    static const size_t edges[] = {0, 1, 4095, MIB - 1, MIB, MIB + MIB / 2 - 1, MIB + MIB / 2, 2 * MIB, 2 * MIB + 1,
                                   2 * MIB + MIB / 2 - 1, 3 * MIB + 7};
    size_t count = sizeof edges / sizeof *edges, which = drawn(count + 6);
    size_t bytes = which < count ? edges[which] : drawn(most + 1);
    return bytes < most ? bytes : most;
}

static CUcontext context;
static CUstream stream;
static CUdeviceptr device;
static CUdeviceptr_v1 low;
static unsigned char *pageable, *pinned;

static CUresult copy(unsigned form, unsigned char *host, size_t at, size_t bytes) {
    switch (form) {
    case 0: return cuMemcpyHtoD_v2(device + at, host, bytes);
    case 1: return cuMemcpyHtoD_v2_ptds(device + at, host, bytes);
    case 2: return cuMemcpyHtoDAsync_v2(device + at, host, bytes, stream);
    case 3: return cuMemcpyHtoDAsync_v2(device + at, host, bytes, NULL);
    case 4: return cuMemcpyHtoDAsync_v2_ptsz(device + at, host, bytes, NULL);
    case 5: return cuMemcpyHtoD(low + (unsigned)at, host, (unsigned)bytes);
    case 6: return cuMemcpyDtoH_v2(host, device + at, bytes);
    case 7: return cuMemcpyDtoH_v2_ptds(host, device + at, bytes);
    case 8: return cuMemcpyDtoHAsync_v2(host, device + at, bytes, stream);
    case 9: return cuMemcpyDtoHAsync_v2(host, device + at, bytes, NULL);
    case 10: return cuMemcpyDtoHAsync_v2_ptsz(host, device + at, bytes, NULL);
    default: return cuMemcpyDtoHAsync(host, low + (unsigned)at, (unsigned)bytes, stream);
    }
}

static void count(unsigned form, CUresult result, size_t bytes) {
    if (result != 0 || bytes == 0) return;
    asked.copies++;
    if (form < FORMS / 2) asked.h2d_bytes += bytes;
    else asked.d2h_bytes += bytes;
}

/* A copy, and what came of it; one in ten reaches beyond the device's memory. */
static void operate(unsigned number) {
    unsigned form = (unsigned)drawn(FORMS);
    size_t all = form == 5 || form == 11 ? LOW_BYTES : BYTES;
    unsigned char *host = drawn(2) ? pageable : pinned;
    size_t bytes = length(all), at = drawn(all - bytes + 1), from = drawn(BYTES - bytes + 1);
    if (drawn(10) == 0 && bytes > 0) at = all - bytes + 1 + drawn(bytes);
    if (form < FORMS / 2) fill(host + from, bytes, number);
    else memset(host + from, (int)number, bytes);
    CUresult result = copy(form, host + from, at, bytes);
    count(form, result, bytes);
    CUresult waited = cuCtxSynchronize();
    printf("%u: %zu bytes in form %u -> %d, %d: %016llx\n", number, bytes, form, result, waited,
           (unsigned long long)sum(host, BYTES));
}

/* Up and down again without a pause between, in order. */
static void chain(void) {
    size_t half = BYTES / 2;
    fill(pinned, half, 7);
    memset(pinned + half, 0, half);
    H2D(cuMemcpyHtoDAsync_v2(device, pinned, half, stream), half);
    D2H(cuMemcpyDtoHAsync_v2(pinned + half, device, half, stream), half);
    CHECK(cuStreamSynchronize(stream));
    SHOW(memcmp(pinned, pinned + half, half) == 0);
}

/* A long copy is one node of a graph. */
static void capture(void) {
    CUgraph graph;
    size_t nodes = 0;
    CHECK(cuStreamBeginCapture_v2(stream, RELAXED));
    CHECK(cuMemcpyHtoDAsync_v2(device, pinned, 3 * MIB, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphGetNodes(graph, NULL, &nodes));
    CHECK(cuGraphDestroy(graph));
    printf("%zu nodes\n", nodes);
}

static void *use_once(void *nothing) {
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuCtxSynchronize());
    return nothing;
}

static atomic_uint rounds;

/* It sees the one pattern or the other, and never a part of both, in whatever order the two threads come. Its copy is counted by
 * the thread that waits for it. */
static void see_whole(void) {
    static unsigned char seen[BYTES];
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemcpyDtoH_v2(seen, device, BYTES));
    for (size_t i = 1; i < BYTES; i++)
        if (seen[i] != seen[0]) {
            printf("half a copy: %d, and %d from byte %zu on\n", seen[0], seen[i], i);
            return;
        }
    puts("whole");
}

static void *look(void *at_round) {
    while (atomic_load(&rounds) < (unsigned)(uintptr_t)at_round) {}
    see_whole();
    return NULL;
}

static void join(pthread_t other) {
    SHOW(pthread_join(other, NULL) == 0);
    count(FORMS - 1, 0, BYTES);
}

static void meet(void) {
    pthread_t other;
    static unsigned char patterns[2][BYTES];
    memset(patterns[1], 1, BYTES);
    H2D(cuMemcpyHtoD_v2(device, patterns[0], BYTES), BYTES);
    SHOW(pthread_create(&other, NULL, look, (void *)(uintptr_t)(1 + drawn(8))) == 0);
    for (unsigned round = 1; round <= 10; round++) {
        atomic_store(&rounds, round);
        H2D(cuMemcpyHtoD_v2(device, patterns[round % 2], BYTES), BYTES);
    }
    join(other);
}

static void handle(int signal) {
    (void)signal;
    static const char said[] = "handled\n";
    if (write(1, said, sizeof said - 1) < 0) _exit(3);
}

static void let_handle(void) {
    struct sigaction action = {.sa_handler = handle};
    SHOW(sigaction(SIGUSR1, &action, NULL) == 0);
}

/* A long copy, which arrives whole; what is read back is read back in short ones. */
static void send(unsigned char word) {
    enum { SENT_BYTES = 8 * MIB };
    fill(pageable, SENT_BYTES, word);
    H2D(cuMemcpyHtoD_v2(device, pageable, SENT_BYTES), SENT_BYTES);
    for (size_t at = 0; at < SENT_BYTES; at += MIB) {
        D2H(cuMemcpyDtoH_v2(pinned, device + at, MIB), MIB);
        SHOW(memcmp(pinned, pageable + at, MIB) == 0);
    }
}

static void send_again(void) {
    struct pollfd in = {.fd = 0, .events = POLLIN};
    for (unsigned char round = 1; poll(&in, 1, 0) == 0; round++) {
        send(round);
        puts("round");
        fflush(stdout);
    }
}

static void *look_when_told(void *set) {
    int got;
    SHOW(sigwait(set, &got) == 0);
    see_whole();
    return NULL;
}

static void be_told(void) {
    pthread_t other;
    sigset_t both, told, handled;
    sigemptyset(&told);
    sigaddset(&told, SIGUSR2);
    sigemptyset(&handled);
    sigaddset(&handled, SIGUSR1);
    both = told;
    sigaddset(&both, SIGUSR1);
    let_handle();
    SET(cuMemsetD8_v2(device, 2, BYTES), BYTES);
    memset(pageable, 1, BYTES);
    /* The other thread is left with both blocked, this one with the one that the other waits for. */
    SHOW(pthread_sigmask(SIG_BLOCK, &both, NULL) == 0);
    SHOW(pthread_create(&other, NULL, look_when_told, &told) == 0);
    SHOW(pthread_sigmask(SIG_UNBLOCK, &handled, NULL) == 0);
    H2D(cuMemcpyHtoD_v2(device, pageable, BYTES), BYTES);
    join(other);
}

static void go_through(const char *mode) {
    if (strcmp(mode, "two") == 0) {
        pthread_t other;
        SHOW(pthread_create(&other, NULL, use_once, NULL) == 0);
        SHOW(pthread_join(other, NULL) == 0);
    }
    fill(pageable, BYTES, 99);
    H2D(cuMemcpyHtoD_v2(device, pageable, BYTES), BYTES);
    H2D(cuMemcpyHtoD_v2(low, pageable, LOW_BYTES), LOW_BYTES);
    for (unsigned number = 0; number < OPERATIONS; number++) operate(number);
    chain();
    capture();
}

int main(int argc, char **argv) {
    void *address;
    if (argc < 3) return 2;
    state = strtoull(argv[1], NULL, 10);
    context = start_context();
    CHECK(cuStreamCreate(&stream, 0));
    ALLOC(cuMemAlloc_v2(&device, BYTES), BYTES);
    ALLOC(cuMemAlloc(&low, LOW_BYTES), LOW_BYTES);
    PIN(cuMemHostAlloc(&address, BYTES, 0), BYTES);
    pinned = address;
    pageable = calloc(1, BYTES);
    SHOW(pageable != NULL);
    if (strcmp(argv[2], "late") == 0) meet();
    else if (strcmp(argv[2], "once") == 0) let_handle(), send(1);
    else if (strcmp(argv[2], "again") == 0) let_handle(), send_again();
    else if (strcmp(argv[2], "told") == 0) be_told();
    else go_through(argv[2]);
    say_asked();
    return 0;
}
