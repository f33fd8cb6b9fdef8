/* With SOFTGPU_EVENT_NS=argv[1] a record or query of an event, and a query of a stream, takes at
 * least so long; two at once take twice as long; and a launch waits for a call that has begun. No
 * upper limits are tested. */
#include "cuda_min.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { CALLS = 4, ATTEMPTS = 500 };

static CUcontext context;
static CUstream stream;
static CUevent event;
static atomic_int is_over, has_waited;
static uint64_t held_ns;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void *query(void *unused) {
    (void)unused;
    DO(cuCtxSetCurrent(context));
    for (int i = 0; i < CALLS; i++) DO(cuEventQuery(event));
    return NULL;
}

/* Launches until one launch had to wait for an event call. */
static void *launch(void *unused) {
    (void)unused;
    DO(cuCtxSetCurrent(context));
    CUfunction shorter = function("short");
    while (!is_over && !has_waited) {
        uint64_t begun_ns = now_ns();
        run(shorter, 1, stream, NULL);
        if (now_ns() - begun_ns >= held_ns / 2) has_waited = 1;
        DO(cuStreamSynchronize(stream));
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t thread;
    if (argc != 2) return 2;
    held_ns = strtoull(argv[1], NULL, 10);
    context = start();
    DO(cuStreamCreate(&stream, 1));
    DO(cuEventCreate(&event, 2));

    uint64_t begun_ns = now_ns();
    DO(cuEventRecord(event, stream));
    SHOW(now_ns() - begun_ns >= held_ns);
    DO(cuEventSynchronize(event));
    begun_ns = now_ns();
    DO(cuEventQuery(event));
    SHOW(now_ns() - begun_ns >= held_ns);
    begun_ns = now_ns();
    DO(cuStreamQuery(stream));
    SHOW(now_ns() - begun_ns >= held_ns);

    /* Calls run one at a time. */
    begun_ns = now_ns();
    pthread_create(&thread, NULL, query, NULL);
    query(NULL);
    pthread_join(thread, NULL);
    SHOW(now_ns() - begun_ns >= 2 * CALLS * held_ns);

    /* A launch coincides with an event call sooner or later. */
    pthread_create(&thread, NULL, launch, NULL);
    for (int i = 0; i < ATTEMPTS && !has_waited; i++) DO(cuEventQuery(event));
    is_over = 1;
    pthread_join(thread, NULL);
    SHOW(has_waited);
    return 0;
}
