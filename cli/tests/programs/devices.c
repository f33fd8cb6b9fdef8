/* devices HOW LAUNCHES: one process on two devices. Prints its requests to each.
 *
 *   both      one thread: the context on device 1 is made while one on device 0 is current; streams
 *             are used and waited for, whichever device is current
 *   threads   a thread for each device, at the same time, on default and created streams; their
 *             contexts are made concurrently
 *   one       device 1 first, then device 0
 *   steady    both devices in rounds of ten, each in its own thread, which prints "round 0" or
 *             "round 1", until standard input ends */
#include "cuda_min.h"

#define DEVICES 2

CUresult cuCtxGetCurrent(CUcontext *);
CUresult cuStreamDestroy_v2(CUstream);
CUresult cuStreamQuery(CUstream);
CUresult cuEventCreate(void **, unsigned);
CUresult cuEventRecord(void *, CUstream);
CUresult cuEventSynchronize(void *);
CUresult cuEventDestroy_v2(void *);
CUresult cuLaunchKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                             void **, void **);
CUresult cuStreamSynchronize_ptsz(CUstream);

static struct { struct work work; atomic_ulong launches, h2d, d2h; } on[DEVICES];
static unsigned long launches_each;
static pthread_barrier_t barrier;
static atomic_int is_over;

/* Counts the copies of `work` for the device on which they were made. */
static void counted_open(int device) {
    struct work *work = &on[device].work;
    CHECK(cu.CtxCreate(&work->context, 0, device));
    work_fill(work, PLAIN_IMAGE);
    on[device].h2d += 2 * ELEMENTS * sizeof(float);
}

static void counted_launch(int device, CUstream stream) {
    work_launch(&on[device].work, stream);
    on[device].launches++;
}

/* Launches on the per-thread default stream of the current context. */
static void per_thread_launch(int device) {
    struct work *work = &on[device].work;
    float a = 1;
    unsigned n = ELEMENTS;
    void *parameters[] = {&a, &work->x, &work->y, &n};
    CHECK(cuLaunchKernel_ptsz(work->saxpy, ELEMENTS / 256, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
    atomic_fetch_add(&work->raised, 1);
    on[device].launches++;
}

static void counted_check(int device) {
    CHECK(cu.CtxSetCurrent(on[device].work.context));
    work_check(&on[device].work);
    on[device].d2h += ELEMENTS * sizeof(float);
}

static void both(void) {
    CUstream streams[DEVICES];
    void *events[DEVICES];
    for (int device = 0; device < DEVICES; device++) {
        counted_open(device);
        CHECK(cu.StreamCreate(&streams[device], 0));
        CHECK(cuEventCreate(&events[device], 2));
    }
    for (unsigned long i = 0; i < launches_each; i++)
        for (int device = 0; device < DEVICES; device++) {
            CHECK(cu.CtxSetCurrent(on[device].work.context));
            counted_launch(device, streams[device]);
            counted_launch(device, NULL);
            per_thread_launch(device);
            CHECK(cuEventRecord(events[device], streams[device]));
            /* The objects determine the device. */
            CHECK(cu.CtxSetCurrent(on[1 - device].work.context));
            CHECK(cuEventSynchronize(events[device]));
            CHECK(cu.StreamSynchronize(streams[device]));
            CHECK(cuStreamQuery(streams[device]));
        }
    for (int device = 0; device < DEVICES; device++) {
        CHECK(cuEventDestroy_v2(events[device]));
        CHECK(cuStreamDestroy_v2(streams[device]));
    }
}

static void *run(void *argument) {
    int device = (int)(intptr_t)argument;
    CUstream stream;
    pthread_barrier_wait(&barrier);
    counted_open(device);
    CHECK(cu.StreamCreate(&stream, 1));
    for (unsigned long i = 0; i < launches_each; i++) {
        counted_launch(device, i % 2 ? stream : NULL);
        if (i % 7 == 0) per_thread_launch(device);
    }
    CHECK(cu.StreamSynchronize(stream));
    CHECK(cuStreamSynchronize_ptsz(NULL));
    return NULL;
}

static void *rounds(void *argument) {
    int device = (int)(intptr_t)argument;
    pthread_barrier_wait(&barrier);
    counted_open(device);
    do {
        for (int i = 0; i < 10; i++) counted_launch(device, NULL);
        CHECK(cu.CtxSynchronize());
        say(device ? "round 1" : "round 0");
    } while (!is_over);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    launches_each = strtoul(argv[2], NULL, 10);
    open_door("linked");
    CHECK(cu.Init(0));
    pthread_barrier_init(&barrier, NULL, DEVICES);
    int is_steady = strcmp(argv[1], "steady") == 0;
    if (is_steady || strcmp(argv[1], "threads") == 0) {
        pthread_t threads[DEVICES];
        for (intptr_t device = 0; device < DEVICES; device++)
            if (pthread_create(&threads[device], NULL, is_steady ? rounds : run, (void *)device) != 0) return 3;
        if (is_steady) {
            wait_until_told_to_end();
            is_over = 1;
        }
        for (int device = 0; device < DEVICES; device++) pthread_join(threads[device], NULL);
    } else if (strcmp(argv[1], "both") == 0) {
        both();
    } else {
        for (int device = DEVICES - 1; device >= 0; device--) {
            counted_open(device);
            for (unsigned long i = 0; i < launches_each; i++) counted_launch(device, NULL);
        }
    }
    for (int device = 0; device < DEVICES; device++) counted_check(device);
    for (int device = 0; device < DEVICES; device++)
        printf("launches_%d=%lu copied_h2d_bytes_%d=%lu copied_d2h_bytes_%d=%lu\n", device, on[device].launches, device,
               on[device].h2d, device, on[device].d2h);
    return 0;
}
