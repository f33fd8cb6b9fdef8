/* order ROW ROUNDS [SHAPE,...|all [STREAMS|0 [THREADS|0]]]: streams that wait for each other
 * through memory.
 *
 * A *shape* submits work before the work that it waits for. One operation more in one of the
 * program's streams, or one more edge between two of them, makes the program hang or changes its
 * results. ROW names the streams:
 *
 *   non-blocking, blocking   all streams are of that kind
 *   per-thread               the default stream of each thread, and blocking streams
 *   pytorch                  non-blocking streams, and the legacy stream is used
 *   legacy                   blocking streams, and the legacy stream is used; all but one are made
 *                            after its first use
 *   mixed                    by turns non-blocking and blocking streams, and the legacy stream is
 *                            used
 *   capturing                by turns non-blocking and blocking streams, while another stream is in
 *                            capture
 *
 * CUDA orders streams only where the program or the legacy stream does, but it does not promise
 * that streams progress independently. These programs need the guarantees of a context with eight
 * connections (`softgpu/src/connection.rs`): of nine streams the ninth shares a connection with the
 * first, and no stream waits for the ninth.
 *
 * The program prints a line with a sum of all results for each round. If a round does not end
 * within ORDER_PATIENCE_S (30 s), the program prints the round's name and exits with 93.
 *
 * order ROW leave: exits while streams wait for a value that is never written. */
#include "order_stage.h"

enum row { NON_BLOCKING_ROW, BLOCKING_ROW, PER_THREAD_ROW, PYTORCH_ROW, LEGACY_ROW, MIXED_ROW, CAPTURING_ROW, ROWS };
static const char *const row_names[ROWS] = {"non-blocking", "blocking", "per-thread", "pytorch", "legacy", "mixed", "capturing"};
static enum row row;

/* Launches work in the legacy stream; legacy_first uses two threads, if there are. */
static void legacy_task(long kernels, long unused) {
    (void)unused;
    while (kernels--) pause_on(LEGACY);
}

static void legacy_first(void) {
    if (!stage.has_legacy) return;
    begin_on(stage.threads - 1, legacy_task, 1, 0);
    legacy_task(1, 0);
    end_on(stage.threads - 1);
}

/* Each lane waits for the next one; the last one is submitted late. v[i] is one more than v[i +
 * 1]. */
static void chain(void) {
    int last = last_lane();
    legacy_first();
    for (int i = 0; i < last || i == 0; i++) {
        lane_wait(i, i);
        lane_add(i, i + 1);
        if (i > 0) lane_write(i, i - 1);
    }
    for (int i = last + 1; i < stage.lanes; i++) lane_fill(i, i);
    if (last == 0) return write_late(0);
    let_look();
    lane_pause(last);
    lane_add(last, last + 1);
    lane_write(last, last - 1);
}

/* One kernel in the legacy stream ends long before another one there; a stream waits meanwhile. */
static void late(void) {
    legacy_first();
    lane_wait(0, 0);
    lane_add(0, 1);
    write_late(0);
}

/* The host writes the value after synchronising another stream. */
static void host_sync(void) {
    legacy_first();
    lane_wait(0, 0);
    lane_add(0, 1);
    if (last_lane() > 0) {
        lane_pause(last_lane());
        let_look();
        lane_fill(last_lane(), 3);
        lane_sync(last_lane());
    } else {
        let_look();
    }
    host_write(0);
}

/* The host writes the value once an event is reached; it polls the event, or waits for it. */
static void host_event(int is_polling) {
    CUevent event = new_event();
    legacy_first();
    if (stage.has_legacy) {
        CHECK(cuEventRecord(event, LEGACY));
    } else {
        lane_pause(last_lane());
        lane_record(last_lane(), event);
    }
    lane_wait(0, 0);
    lane_add(0, 1);
    while (is_polling && cuEventQuery(event) == NOT_READY) usleep(50);
    CHECK(cuEventSynchronize(event));
    let_look();
    host_write(0);
    lane_sync(0);
    CHECK(cuEventDestroy_v2(event));
}

static void host_query(void) { host_event(1); }
static void host_event_sync(void) { host_event(0); }

static void is_idle_task(long lane, long done) {
    CUresult result = cuStreamQuery(stream_of(lane));
    if (result != NOT_READY) CHECK(result);
    *(int *)done = result == 0;
}

/* The host writes the value once a query reports another stream as idle. */
static void stream_query(void) {
    int is_idle = last_lane() == 0;
    legacy_first();
    lane_wait(0, 0);
    lane_add(0, 1);
    if (!is_idle) lane_pause(last_lane());
    let_look();
    if (!is_idle) lane_fill(last_lane(), 3);
    while (!is_idle) at(last_lane(), is_idle_task, (long)&is_idle);
    host_write(0);
}

static void write_in_call(void *flag) { host_write((long)flag); }

static void write_in_callback(CUstream stream, CUresult result, void *flag) {
    (void)stream;
    if (result == 0) host_write((long)flag);
}

static void call_task(long lane, long flag) { CHECK(cuLaunchHostFunc(stream_of(lane), write_in_call, (void *)flag)); }

static void callback_task(long lane, long flag) {
    CHECK(cuStreamAddCallback(stream_of(lane), write_in_callback, (void *)flag, 0));
}

/* A host function in another stream writes the value. */
static void host_call(task *call) {
    legacy_first();
    if (last_lane() == 0) {
        at(0, call, 2);
        lane_wait(0, 0);
        lane_add(0, 1);
        while (!atomic_load(&stage.pinned_flags[2])) usleep(50);
        let_look();
        return host_write(0);
    }
    lane_wait(0, 0);
    lane_add(0, 1);
    lane_pause(last_lane());
    let_look();
    at(last_lane(), call, 0);
}

static void host_func(void) { host_call(call_task); }
static void callback(void) { host_call(callback_task); }

/* Hundreds of launches after a wait; in one case nearly as many as a queue holds. */
static void run_ahead(void) {
    int last = last_lane();
    legacy_first();
    lane_wait(0, 0);
    lane_many(0, stage.lanes == 1 && stage.threads == 1 ? 1000 : 200);
    for (int i = 1; i < stage.lanes; i++)
        if (i != last) lane_many(i, 40);
    write_late(0);
}

static void synchronise_context(long unused, long unused_too) {
    (void)unused, (void)unused_too;
    CHECK(cu.CtxSynchronize());
}

/* One thread waits for the whole context while another one submits the awaited write. */
static void context_sync(void) {
    legacy_first();
    lane_wait(0, 0);
    lane_add(0, 1);
    begin_on(stage.threads - 1, synchronise_context, 0, 0);
    let_look();
    host_write(2);
    if (last_lane() > 0 && thread_of(last_lane()) != stage.threads - 1) lane_write(last_lane(), 0);
    else host_write(0);
    end_on(stage.threads - 1);
}

/* Another stream, the legacy one if it is used, waits for an event that follows the wait. */
static void wait_event(void) {
    CUevent event = new_event();
    legacy_first();
    lane_wait(0, 0);
    lane_add(0, 1);
    lane_record(0, event);
    if (stage.has_legacy) {
        CHECK(cuStreamWaitEvent(LEGACY, event, 0));
        add_on(LEGACY, LANES_MAX, 0);
    } else if (last_lane() > 0) {
        lane_await(last_lane(), event);
        lane_add(last_lane(), 0);
    }
    let_look();
    host_write(0);
    lane_sync(0);
    CHECK(cuEventDestroy_v2(event));
}

/* The legacy stream waits, and a stream that is not ordered with it writes. */
static void legacy_waits(void) {
    int writer = stage.lanes < CONNECTIONS ? stage.lanes - 1 : CONNECTIONS - 2;
    if (row == MIXED_ROW) writer -= writer % 2;
    pause_on(LEGACY);
    wait_on(LEGACY, 0);
    add_on(LEGACY, LANES_MAX, LANES_MAX);
    let_look();
    lane_fill(writer, 4);
    lane_write(writer, 0);
}

/* A blocking stream waits, then the legacy stream; a stream that is ordered with neither writes. */
static void behind_legacy(void) {
    CUstream stream;
    CHECK(cu.StreamCreate(&stream, BLOCKING));
    legacy_first();
    wait_on(stream, 0);
    add_on(stream, LANES_MAX, LANES_MAX);
    pause_on(LEGACY);
    add_on(LEGACY, LANES_MAX + 1, LANES_MAX);
    let_look();
    lane_fill(0, 4);
    if (stage.lanes < CONNECTIONS - 1) lane_write(0, 0);
    else host_write(0);
    CHECK(cu.StreamSynchronize(LEGACY));
    CHECK(cuStreamDestroy_v2(stream));
}

/* Synchronous copies, which wait only for the legacy stream, while another stream waits. */
static void sync_copy(void) {
    static float there[1 << 16];
    CUdeviceptr memory = stage.vectors + (LANES_MAX + 1) * WIDTH * sizeof(float);
    legacy_first();
    lane_wait(0, 0);
    lane_add(0, 1);
    for (int i = 0; i < WIDTH; i++) there[i] = (float)i;
    to_device(memory, there, WIDTH * sizeof(float));
    memset(there, 0, WIDTH * sizeof(float));
    to_host(there, memory, WIDTH * sizeof(float));
    for (int i = 0; i < WIDTH; i++)
        if (there[i] != (float)i) exit(WRONG_RESULT);
    let_look();
    host_write(0);
}

#define COPIED (4 << 20)
static unsigned char *copied[2];
static CUdeviceptr copied_device;

static void copy_task(long lane, long unused) {
    (void)unused;
    CHECK(cuMemcpyHtoDAsync_v2(copied_device, copied[0], COPIED, stream_of(lane)));
    CHECK(cuMemcpyDtoHAsync_v2(copied[1], copied_device, COPIED, stream_of(lane)));
}

static void pool_task(long lane, long unused) {
    CUdeviceptr memory;
    (void)unused;
    CHECK(cuMemAllocAsync(&memory, 1 << 16, stream_of(lane)));
    CHECK(cuMemsetD32Async(memory, 7, 64, stream_of(lane)));
    CHECK(cuMemFreeAsync(memory, stream_of(lane)));
}

/* Copies and allocations in stream order, after the wait. */
static void copies(void) {
    legacy_first();
    copied[0][COPIED - 1] = copied[0][0] = 77;
    copied[1][COPIED - 1] = copied[1][0] = 1;
    lane_wait(0, 0);
    at(0, copy_task, 0);
    if (row != CAPTURING_ROW) at(0, pool_task, 0);
    lane_add(0, 1);
    write_late(0);
    lane_sync(0);
    if (copied[1][0] != 77 || copied[1][COPIED - 1] != 77) exit(WRONG_RESULT);
}

static void destroy_task(long lane, long unused) {
    (void)unused;
    CHECK(cuStreamDestroy_v2(stream_of(lane)));
}

/* A stream is destroyed while it waits, and another one continues after its work. */
static void destroy(void) {
    int lane = last_lane();
    if (!stage.lane[lane].is_created) return;
    CUevent event = new_event();
    legacy_first();
    lane_pause(lane);
    lane_wait(lane, 0);
    lane_add(lane, lane + 1);
    lane_record(lane, event);
    at(lane, destroy_task, 0);
    let_look();
    CHECK(cu.StreamCreate(&stage.lane[lane].stream, row == BLOCKING_ROW || row == LEGACY_ROW ? BLOCKING : NON_BLOCKING));
    lane_await(lane, event);
    lane_add(lane, lane);
    let_look();
    host_write(0);
    lane_sync(lane);
    CHECK(cuEventDestroy_v2(event));
}

/* Graphs in the legacy stream, and after a wait. */
static void graph(void) {
    legacy_first();
    if (stage.has_legacy) {
        CHECK(cuGraphLaunch(stage.graph, LEGACY));
        CHECK(cu.StreamSynchronize(LEGACY));
        legacy_first();
    }
    lane_wait(0, 0);
    lane_graph(0, stage.graph);
    lane_graph(0, stage.graph);
    let_look();
    if (last_lane() > 0) lane_fill(last_lane(), 6);
    write_late(0);
}

static void use_context(CUcontext context) { CHECK(cu.CtxSetCurrent(context)); }

/* A stream of another context with its own legacy work is between two streams of this context. */
static void contexts(void) {
    CUcontext other;
    CUmodule module;
    CUfunction pause;
    CUstream stream;
    CHECK(cu.CtxCreate(&other, 0, 0));
    CHECK(cu.ModuleLoadData(&module, "softgpu-module 1\n"
                                     "kernel rest block_ns=500000 regs=32 shared=0 compute=0.01 bandwidth=0.01\n"));
    CHECK(cu.ModuleGetFunction(&pause, module, "rest"));
    CHECK(cu.StreamCreate(&stream, BLOCKING));
    use_context(stage.context);
    legacy_first();
    lane_wait(0, 0);
    lane_add(0, 1);
    use_context(other);
    launch(pause, 1, NULL, NULL);
    launch(pause, 1, NULL, NULL);
    CHECK(cuStreamWaitValue32_v2(stream, flag_at(2), 1, 0));
    launch(pause, 1, stream, NULL);
    CHECK(cuStreamWriteValue32_v2(stream, flag_at(0), 1, 0));
    use_context(stage.context);
    write_late(2);
    lane_sync(0);
    use_context(other);
    CHECK(cu.CtxDestroy(other));
    use_context(stage.context);
}

/* Events are created and destroyed while they are pending. */
static void own_events(void) {
    legacy_first();
    lane_wait(0, 0);
    lane_add(0, 1);
    for (int i = 0; i < stage.lanes; i++) {
        CUevent event = new_event();
        if (i > 0) lane_fill(i, i);
        lane_record(i, event);
        CUresult result = cuEventQuery(event);
        if (result != NOT_READY) CHECK(result);
        if (i > 0) lane_await(i, event);
        CHECK(cuEventDestroy_v2(event));
    }
    write_late(0);
}

static void *work_and_end(void *event) {
    use_context(stage.context);
    pause_on(PER_THREAD);
    wait_on(PER_THREAD, 0);
    add_on(PER_THREAD, LANES_MAX, LANES_MAX);
    CHECK(cuEventRecord(event, PER_THREAD));
    return NULL;
}

/* A thread ends while its default stream waits. */
static void thread_end(void) {
    pthread_t thread;
    CUevent event = new_event();
    legacy_first();
    if (pthread_create(&thread, NULL, work_and_end, event)) exit(3);
    pthread_join(thread, NULL);
    let_look();
    lane_fill(last_lane(), 2);
    write_late(0);
    CHECK(cuEventSynchronize(event));
    CHECK(cu.CtxSynchronize());
    CHECK(cuEventDestroy_v2(event));
}

static void *wait_unlaunched(void *event) {
    use_context(stage.context);
    wait_on(PER_THREAD, 0);
    CHECK(cuMemsetD32Async(v(LANES_MAX), 0x40000000, WIDTH, PER_THREAD));
    CHECK(cuEventRecord(event, PER_THREAD));
    return NULL;
}

static void *write_unlaunched(void *event) {
    use_context(stage.context);
    CHECK(cuMemsetD32Async(v(LANES_MAX + 1), 0x40400000, WIDTH, PER_THREAD));
    write_on(PER_THREAD, 0);
    CHECK(cuEventRecord(event, PER_THREAD));
    return NULL;
}

/* Default streams of threads that launch no kernel, beside the legacy stream. */
static void unlaunched(void) {
    pthread_t threads[2];
    CUevent events[2] = {new_event(), new_event()};
    legacy_first();
    if (pthread_create(&threads[0], NULL, wait_unlaunched, events[0])) exit(3);
    pthread_join(threads[0], NULL);
    let_look();
    if (pthread_create(&threads[1], NULL, write_unlaunched, events[1])) exit(3);
    pthread_join(threads[1], NULL);
    for (int i = 0; i < 2; i++) {
        CHECK(cuEventSynchronize(events[i]));
        CHECK(cuEventDestroy_v2(events[i]));
    }
}

/* The first blocking streams of a context are made while a kernel of the legacy stream runs. */
static void late_streams(void) {
    CUstream first, second;
    legacy_first();
    CHECK(cu.StreamCreate(&first, BLOCKING));
    wait_on(first, 0);
    add_on(first, LANES_MAX, LANES_MAX);
    let_look();
    CHECK(cuStreamCreateWithPriority(&second, BLOCKING, -1));
    add_on(second, LANES_MAX + 1, LANES_MAX + 1);
    write_on(second, 0);
    CHECK(cu.StreamSynchronize(first));
    CHECK(cuStreamDestroy_v2(first));
    CHECK(cuStreamDestroy_v2(second));
}

static void flood_task(long lane, long count) { lane_many_(lane, count); }

static void *write_soon(void *unused) {
    let_look();
    let_look();
    host_write(0);
    return unused;
}

/* More launches after a wait than a queue holds. The submitting thread waits in the driver,
 * possibly with a lock that others need, until a thread that does not call the driver writes the
 * value. */
static void full_queue(void) {
    /* Use the lane's own thread: other threads cannot use its default stream. */
    int lane = stage.lanes < stage.threads ? 0 : stage.threads - 1, thread = thread_of(lane);
    pthread_t writer;
    CUstream stream;
    legacy_first();
    at(lane, lane_wait_, 0);
    if (pthread_create(&writer, NULL, write_soon, NULL)) exit(3);
    begin_on(thread, flood_task, lane, 1500);
    let_look();
    CHECK(cu.StreamCreate(&stream, NON_BLOCKING));
    pthread_join(writer, NULL);
    end_on(thread);
    CHECK(cuStreamDestroy_v2(stream));
}

static void flood_legacy_task(long vector, long count) {
    while (count--) add_on(LEGACY, vector, vector);
}

/* The same in the legacy stream, while the first blocking stream is made. */
static void full_legacy(void) {
    pthread_t writer;
    CUstream stream;
    wait_on(LEGACY, 0);
    if (pthread_create(&writer, NULL, write_soon, NULL)) exit(3);
    begin_on(stage.threads - 1, flood_legacy_task, LANES_MAX, 1500);
    let_look();
    CHECK(cu.StreamCreate(&stream, BLOCKING));
    pthread_join(writer, NULL);
    end_on(stage.threads - 1);
    CHECK(cuStreamDestroy_v2(stream));
}

static CUgraphExec captured(CUstream stream, CUgraph *graph, size_t nodes_expected) {
    CUgraphExec exec;
    size_t nodes = 0;
    CHECK(cuStreamEndCapture(stream, graph));
    CHECK(cuGraphGetNodes(*graph, NULL, &nodes));
    if (nodes != nodes_expected) {
        printf("wrong: %zu nodes\n", nodes);
        exit(WRONG_RESULT);
    }
    CHECK(cuGraphInstantiateWithFlags(&exec, *graph, 0));
    return exec;
}

/* A capture in each mode, which spreads to a second stream while lanes wait for each other. Its
 * graph is then launched in streams with other work. */
static void capture(void) {
    static unsigned turn;
    CUstream streams[2];
    CUgraph graph;
    CUevent fork = new_event(), join = new_event();
    CHECK(cu.StreamCreate(&streams[0], turn / 3 % 2 || stage.has_legacy ? NON_BLOCKING : BLOCKING));
    CHECK(cu.StreamCreate(&streams[1], NON_BLOCKING));
    legacy_first();
    lane_wait(0, 0);
    lane_add(0, 1);
    CHECK(cuStreamBeginCapture_v2(streams[0], (int)(turn++ % 3)));
    add_on(streams[0], LANES_MAX, LANES_MAX);
    CHECK(cuEventRecord(fork, streams[0]));
    CHECK(cuStreamWaitEvent(streams[1], fork, 0));
    add_on(streams[1], LANES_MAX + 1, LANES_MAX);
    CHECK(cuEventRecord(join, streams[1]));
    if (last_lane() > 0) lane_fill(last_lane(), 2);
    let_look();
    CHECK(cuStreamWaitEvent(streams[0], join, 0));
    add_on(streams[0], LANES_MAX, LANES_MAX + 1);
    if (last_lane() > 0) lane_pause(last_lane());
    CUgraphExec exec = captured(streams[0], &graph, 3);
    CHECK(cuGraphLaunch(exec, streams[1]));
    CHECK(cu.StreamSynchronize(streams[1]));
    lane_graph(last_lane() > 0 ? last_lane() : 0, exec);
    write_late(0);
    lane_sync(0);
    lane_sync(last_lane());
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    for (int i = 0; i < 2; i++) CHECK(cuStreamDestroy_v2(streams[i]));
    CHECK(cuEventDestroy_v2(fork));
    CHECK(cuEventDestroy_v2(join));
}

/* Conditions for a shape. */
enum { LEGACY_ONLY = 1, NON_BLOCKING_ONLY = 2, THREADS = 4, NOT_CAPTURING = 8, SHORT = 16, NOT_BLOCKING = 32 };

static const struct shape {
    const char *name;
    void (*run)(void);
    int where;
} shapes[] = {
    {"chain", chain, 0},
    {"late", late, 0},
    {"host-sync", host_sync, 0},
    {"host-query", host_query, 0},
    {"host-event-sync", host_event_sync, 0},
    {"stream-query", stream_query, 0},
    {"host-func", host_func, 0},
    {"callback", callback, 0},
    {"wait-event", wait_event, 0},
    {"own-events", own_events, 0},
    {"graph", graph, NOT_CAPTURING},
    {"capture", capture, NOT_CAPTURING},
    {"thread-end", thread_end, NOT_CAPTURING},
    {"context-sync", context_sync, THREADS | NOT_CAPTURING},
    {"legacy-waits", legacy_waits, LEGACY_ONLY | NOT_BLOCKING},
    {"behind-legacy", behind_legacy, LEGACY_ONLY | NOT_BLOCKING},
    {"unlaunched", unlaunched, LEGACY_ONLY},
    {"late-streams", late_streams, LEGACY_ONLY},
    {"sync-copy", sync_copy, NON_BLOCKING_ONLY},
    {"copies", copies, SHORT},
    {"contexts", contexts, SHORT | NOT_CAPTURING},
    {"run-ahead", run_ahead, SHORT},
    {"full-queue", full_queue, SHORT | THREADS},
    {"full-legacy", full_legacy, SHORT | THREADS | LEGACY_ONLY},
    /* Must be last: it moves the last lane to another connection. */
    {"destroy", destroy, 0},
};
#define SHAPES (sizeof shapes / sizeof *shapes)

static int makes_sense(const struct shape *shape) {
    int is_non_blocking = row == NON_BLOCKING_ROW || row == PYTORCH_ROW;
    if (shape->where & LEGACY_ONLY && !stage.has_legacy) return 0;
    if (shape->where & NON_BLOCKING_ONLY && !is_non_blocking) return 0;
    if (shape->where & NOT_BLOCKING && row == LEGACY_ROW) return 0;
    if (shape->where & NOT_CAPTURING && row == CAPTURING_ROW) return 0;
    return !(shape->where & THREADS) || stage.threads > 1;
}

/* Whether the comma-separated list `names` contains `name`, or is "all". */
static int is_named(const char *names, const char *name) {
    size_t length = strlen(name);
    const char *at = names;
    while (at && strncmp(at, name, length)) at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
    return !strcmp(names, "all") || (at && (at[length] == ',' || !at[length]));
}

static void use_own_stream(long lane, long unused) {
    (void)unused;
    stage.lane[lane].stream = PER_THREAD;
    CHECK(cuStreamQuery(PER_THREAD));
}

/* Creates the row's streams in this order. In the row `legacy` most of them are made after the
 * first stream and the legacy stream were used together. */
static void make_lanes(void) {
    for (int i = 0; i < stage.lanes; i++) {
        stage.lane[i].is_created = !(row == PER_THREAD_ROW && i < stage.threads);
        int is_blocking = row == BLOCKING_ROW || row == LEGACY_ROW || row == PER_THREAD_ROW || i % 2 == 1;
        if (row == NON_BLOCKING_ROW || row == PYTORCH_ROW) is_blocking = 0;
        if (!stage.lane[i].is_created) at(i, use_own_stream, 0);
        else CHECK(cuStreamCreateWithPriority(&stage.lane[i].stream, is_blocking ? BLOCKING : NON_BLOCKING, -(i % 2)));
        if (i == 0 && row == LEGACY_ROW) {
            legacy_first();
            lane_pause(0);
            let_look();
        }
    }
}

/* Makes a graph of three kernels. */
static void make_graph(void) {
    CUstream stream;
    CUgraph graph;
    CHECK(cu.StreamCreate(&stream, NON_BLOCKING));
    CHECK(cuStreamBeginCapture_v2(stream, RELAXED));
    for (int i = 0; i < 3; i++) add_on(stream, LANES_MAX + 2, LANES_MAX + 2);
    stage.graph = captured(stream, &graph, 3);
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamDestroy_v2(stream));
}

/* Plays a round; in the row `capturing` within a capture on another stream. */
static unsigned long play(const struct shape *shape, int round) {
    CUstream stream = NULL;
    CUgraph graph;
    if (row == CAPTURING_ROW) {
        CHECK(cu.StreamCreate(&stream, round % 2 ? BLOCKING : NON_BLOCKING));
        CHECK(cuStreamBeginCapture_v2(stream, RELAXED));
        add_on(stream, LANES_MAX, LANES_MAX);
    }
    reset();
    shape->run();
    unsigned long sum = sum_up();
    if (stream) {
        add_on(stream, LANES_MAX, LANES_MAX);
        CUgraphExec exec = captured(stream, &graph, 2);
        CHECK(cuGraphLaunch(exec, stream));
        CHECK(cu.StreamSynchronize(stream));
        CHECK(cuGraphExecDestroy(exec));
        CHECK(cuGraphDestroy(graph));
        CHECK(cuStreamDestroy_v2(stream));
    }
    return sum;
}

static void play_all(const char *names, int rounds, int lanes, int threads) {
    snprintf(place, sizeof place, "%s, %d streams, %d threads, beginning", row_names[row], lanes, threads);
    stage.has_legacy = row == PYTORCH_ROW || row == LEGACY_ROW || row == MIXED_ROW;
    open_stage(lanes, threads);
    make_graph();
    make_lanes();
    copied[0] = pinned(COPIED);
    copied[1] = pinned(COPIED);
    CHECK(cu.MemAlloc(&copied_device, COPIED));
    for (size_t i = 0; i < SHAPES; i++) {
        const struct shape *shape = &shapes[i];
        if (!makes_sense(shape) || !is_named(names, shape->name)) continue;
        int times = shape->where & SHORT ? (rounds + 3) / 4 : rounds;
        for (int round = 0; round < times; round++) {
            snprintf(place, sizeof place, "%s, %d streams, %d threads, %s, round %d", row_names[row], lanes, threads,
                     shape->name, round);
            atomic_fetch_add(&progress, 1);
            unsigned long sum = play(shape, round);
            printf("%s: %lx\n", place, sum);
            fflush(stdout);
        }
    }
    CHECK(cu.MemFree(copied_device));
    CHECK(cuMemFreeHost(copied[0]));
    CHECK(cuMemFreeHost(copied[1]));
    close_stage();
}

/* Exits while streams wait for a value that is never written. */
static int leave(void) {
    stage.has_legacy = row == PYTORCH_ROW || row == LEGACY_ROW || row == MIXED_ROW;
    open_stage(2, 1);
    make_graph();
    make_lanes();
    legacy_first();
    for (int i = 0; i < 2; i++) {
        lane_pause(i);
        lane_wait(i, 0);
        lane_add(i, i);
    }
    let_look();
    say("left");
    return 0;
}

int main(int argc, char **argv) {
    static const int lanes[] = {1, 8, 9}, threads[] = {1, 3, 9};
    pthread_t watchdog;
    if (argc < 3 || argc > 6) return 2;
    while (row < ROWS && strcmp(row_names[row], argv[1])) row++;
    if (row == ROWS) return 2;
    if (getenv("ORDER_PATIENCE_S")) patience_s = atoi(getenv("ORDER_PATIENCE_S"));
    if (pthread_create(&watchdog, NULL, watch, NULL)) return 3;
    open_door("linked");
    CHECK(cu.Init(0));
    if (!strcmp(argv[2], "leave")) return leave();
    const char *names = argc > 3 ? argv[3] : "all";
    int only_lanes = argc > 4 ? atoi(argv[4]) : 0, only_threads = argc > 5 ? atoi(argv[5]) : 0;
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++) {
            /* With as many threads as streams, each stream is a thread's default stream. */
            int is_wanted = j < 2 || (row == PER_THREAD_ROW && lanes[i] == threads[j]);
            if (only_lanes && only_lanes != lanes[i]) continue;
            if (only_threads && only_threads != threads[j]) continue;
            if (!is_wanted) continue;
            play_all(names, atoi(argv[2]), lanes[i], threads[j]);
        }
    }
    printf("launches=%lu\n", atomic_load(&asked.launches));
    return 0;
}
