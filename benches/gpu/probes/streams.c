/* streams: the order between CUDA streams on which interpose/src/progress/sight.rs relies.
 *
 *   --ptx FILE  --most N (streams at once)
 *
 * `rows`: with a kernel of 20 ms in one stream, the time until an event or call in another stream
 *   is complete, and whether it must wait for the kernel.
 * `shared`: each of N streams and the legacy stream in turn gets a kernel of 5 ms and nothing, a
 *   kernel or an event behind it. Counts late kernels of the other streams, which are those that
 *   share a hardware queue.
 * `depth`: the number of launches that a stream accepts behind a running kernel, and the duration
 *   of another thread's calls on another stream meanwhile. */
#include "probe.h"

#include <pthread.h>

enum { LONG_US = 20000, SHARED_US = 5000, LOOK_NS = 2000000, STREAMS_MAX = 129, DEPTH_US = 200000, LAUNCHES_MAX = 50000, BLOCKING = 0 };
/* A launch that takes longer than FULL_NS has waited for room in the stream. Meanwhile the other
 * thread makes a call every OTHER_NS. */
static const uint64_t FULL_NS = 5000000, OTHER_NS = 1000000;

static struct spin spin;
static unsigned (*create)(CUstream *, unsigned), (*destroy)(CUstream), (*destroy_event)(CUevent), (*query)(CUstream), (*current)(CUcontext *);
static CUcontext context;
static unsigned loops;
static int rows;

static void launch(CUstream stream, unsigned loops) { CHECK(spin_launch(&spin, 1, loops, stream, NULL)); }

/* Records the event in the stream: the time until it is complete, ms. */
static double waited_ms(CUstream stream, CUevent event) {
    uint64_t begin = now_ns();
    CHECK(cu.EventRecord(event, stream));
    while (cu.EventQuery(event) == NOT_READY) {}
    return (double)(now_ns() - begin) / 1e6;
}

/* Prints one row: the time behind a long kernel, and whether it waited as it must. */
static void row(const char *name, double ms, int must_wait) {
    int waits = ms * 1e3 > LONG_US / 2;
    printf("%s{\"row\": \"%s\", \"ms\": %.3f, \"must_wait\": %s, \"holds\": %s}", rows++ == 0 ? "" : ", ", name, ms,
           must_wait ? "true" : "false", waits == must_wait ? "true" : "false");
    CHECK(cu.CtxSynchronize());
}

static void table(void) {
    CUstream blocking, private_, free_, second;
    CUevent event;
    CHECK(create(&blocking, BLOCKING));
    CHECK(create(&private_, BLOCKING));
    CHECK(create(&free_, NON_BLOCKING));
    CHECK(create(&second, NON_BLOCKING));
    CHECK(cu.EventCreate(&event, NO_TIMING));
    launch(NULL, loops);
    row("legacy busy: event in a blocking stream", waited_ms(private_, event), 1);
    launch(NULL, loops);
    row("legacy busy: event in a non-blocking stream", waited_ms(free_, event), 0);
    launch(blocking, loops);
    row("blocking busy: event in another blocking stream", waited_ms(private_, event), 0);
    launch(blocking, loops);
    row("blocking busy: event in the legacy stream", waited_ms(NULL, event), 1);
    launch(free_, loops);
    row("non-blocking busy: event in the legacy stream", waited_ms(NULL, event), 0);
    launch(free_, loops);
    row("non-blocking busy: event in another one", waited_ms(second, event), 0);
    launch(free_, loops);
    row("non-blocking busy: event in it", waited_ms(free_, event), 1);
    launch(blocking, loops);
    CHECK(cu.EventRecord(event, NULL));
    row("an event in the legacy stream behind a blocking one: later work of another blocking stream", waited_ms(private_, event), 1);
    launch(blocking, loops);
    unsigned told = query(NULL);
    row("blocking busy: cuStreamQuery of the legacy stream says not ready", told == NOT_READY ? LONG_US : 0, 1);
    launch(free_, loops);
    told = query(NULL);
    row("non-blocking busy: cuStreamQuery of the legacy stream says not ready", told == NOT_READY ? LONG_US : 0, 0);
    launch(blocking, loops);
    uint64_t begin = now_ns();
    CHECK(cu.StreamSynchronize(private_));
    row("blocking busy: cuStreamSynchronize of another blocking stream", (double)(now_ns() - begin) / 1e6, 0);
    CHECK(destroy(blocking));
    CHECK(destroy(private_));
    CHECK(destroy(free_));
    CHECK(destroy(second));
}

/* The work behind the long kernel in its stream. */
enum behind { NOTHING, KERNEL, EVENT, KINDS };
static const char *const kinds[KINDS] = {"nothing", "kernel", "event"};

/* Each of `count` streams and the legacy stream in turn gets a long kernel and `kind` behind it;
 * each of the others gets a short kernel and an event. Counts the pairs with a late event, and the
 * most late events behind one stream. */
static void shared(int count, enum behind kind, int is_first) {
    static CUstream streams[STREAMS_MAX];
    static CUevent events[STREAMS_MAX];
    int late = 0, most = 0;
    streams[0] = NULL;
    for (int i = 1; i <= count; i++) CHECK(create(&streams[i], NON_BLOCKING));
    for (int i = 0; i <= count; i++) CHECK(cu.EventCreate(&events[i], NO_TIMING));
    for (int busy = 0; busy <= count; busy++) {
        int behind = 0;
        launch(streams[busy], loops);
        if (kind == KERNEL) launch(streams[busy], 1);
        if (kind == EVENT) CHECK(cu.EventRecord(events[busy], streams[busy]));
        uint64_t until = now_ns() + LOOK_NS;
        for (int i = 0; i <= count; i++) {
            if (i == busy) continue;
            launch(streams[i], 1);
            CHECK(cu.EventRecord(events[i], streams[i]));
        }
        while (now_ns() < until) {}
        for (int i = 0; i <= count; i++) behind += i != busy && cu.EventQuery(events[i]) == NOT_READY;
        late += behind;
        most = behind > most ? behind : most;
        CHECK(cu.CtxSynchronize());
    }
    printf("%s{\"streams\": %d, \"behind_it\": \"%s\", \"late_pairs\": %d, \"most_behind_one\": %d}", is_first ? "" : ", ", count,
           kinds[kind], late, most);
    for (int i = 0; i <= count; i++) CHECK(destroy_event(events[i]));
    for (int i = 1; i <= count; i++) CHECK(destroy(streams[i]));
}

static volatile int is_over;
static CUstream other_stream;
static uint64_t record_max_ns, query_max_ns;

static void *call_elsewhere(void *unused) {
    CUevent event;
    CHECK(cu.CtxSetCurrent(context));
    CHECK(cu.EventCreate(&event, NO_TIMING));
    for (uint64_t due = now_ns(); !is_over; due += OTHER_NS) {
        sleep_until_ns(due);
        uint64_t begin = now_ns();
        CHECK(cu.EventRecord(event, other_stream));
        uint64_t middle = now_ns();
        cu.EventQuery(event);
        uint64_t end = now_ns();
        if (middle - begin > record_max_ns) record_max_ns = middle - begin;
        if (end - middle > query_max_ns) query_max_ns = end - middle;
    }
    return unused;
}

static void depth(void) {
    CUstream stream;
    pthread_t thread;
    int taken = 0;
    CHECK(create(&stream, NON_BLOCKING));
    CHECK(create(&other_stream, NON_BLOCKING));
    launch(stream, spin_loops(&spin, DEPTH_US));
    if (pthread_create(&thread, NULL, call_elsewhere, NULL) != 0) exit(2);
    uint64_t waited = 0;
    for (; taken < LAUNCHES_MAX && waited < FULL_NS; taken++) {
        uint64_t begin = now_ns();
        launch(stream, 1);
        waited = now_ns() - begin;
    }
    is_over = 1;
    pthread_join(thread, NULL);
    CHECK(cu.CtxSynchronize());
    printf("\"depth\": {\"launches\": %d, \"is_full\": %s, \"waited_ms\": %.3f, \"record_elsewhere_max_us\": %.1f, "
           "\"query_elsewhere_max_us\": %.1f}", taken, waited >= FULL_NS ? "true" : "false", (double)waited / 1e6,
           (double)record_max_ns / 1e3, (double)query_max_ns / 1e3);
}

int main(int count, char **arguments) {
    static const int counts[] = {2, 7, 8, 9, 16, 33, 64, 128};
    spin_open(&spin, argument(count, arguments, "--ptx", "spin.ptx"));
    *(void **)&create = find("cuStreamCreate");
    *(void **)&destroy = find("cuStreamDestroy_v2");
    *(void **)&destroy_event = find("cuEventDestroy_v2");
    *(void **)&query = find("cuStreamQuery");
    *(void **)&current = find("cuCtxGetCurrent");
    CHECK(current(&context));
    spin_calibrate(&spin, 1);
    int most = (int)number(count, arguments, "--most", "128");
    say("ready");
    wait_for_line();
    loops = spin_loops(&spin, LONG_US);
    printf("{\"rows\": [");
    table();
    loops = spin_loops(&spin, SHARED_US);
    printf("], \"shared\": [");
    for (size_t i = 0; i < sizeof counts / sizeof *counts && counts[i] <= most; i++)
        for (int kind = 0; kind < KINDS; kind++) shared(counts[i], kind, i + (size_t)kind == 0);
    printf("], ");
    depth();
    say("}");
    wait_for_end();
    return 0;
}
