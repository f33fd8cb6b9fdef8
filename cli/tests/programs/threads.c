/* threads HOW THREADS LAUNCHES: threads that launch at the same time, and the ways in which they
 * end.
 *
 *   join     each launches LAUNCHES kernels, and main joins them; the result is checked
 *   exit     main calls exit(5) when standard input ends, while the threads run
 *   leave    main leaves by pthread_exit at once; the last thread calls exit(8) when it is done:
 *            drivers have threads of their own, so the process would not exit otherwise
 *   cancel   main cancels all of them when standard input ends, and joins them
 *   return   main returns 6 when standard input ends, while the threads run */
#include "cuda_min.h"

static struct work work;
static unsigned long launches_each;
static int is_left;
static atomic_uint running;

static void *run(void *unused) {
    CUstream stream;
    (void)unused;
    CHECK(cu.CtxSetCurrent(work.context));
    CHECK(cu.StreamCreate(&stream, 0));
    for (unsigned long i = 0; i < launches_each; i++) {
        work_launch(&work, stream);
        pthread_testcancel();
    }
    CHECK(cu.StreamSynchronize(stream));
    if (atomic_fetch_sub(&running, 1) == 1 && is_left) exit(8);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    const char *how = argv[1];
    unsigned count = (unsigned)atoi(argv[2]);
    launches_each = strtoul(argv[3], NULL, 10);
    is_left = strcmp(how, "leave") == 0;
    atomic_init(&running, count);
    pthread_t *threads = calloc(count, sizeof *threads);
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    for (unsigned i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, run, NULL) != 0) return 3;
    say("started");
    if (is_left) pthread_exit(NULL);
    if (strcmp(how, "join") != 0) wait_until_told_to_end();
    if (strcmp(how, "exit") == 0) exit(5);
    if (strcmp(how, "return") == 0) return 6;
    unsigned cancelled = 0;
    if (strcmp(how, "cancel") == 0)
        for (unsigned i = 0; i < count; i++) pthread_cancel(threads[i]);
    for (unsigned i = 0; i < count; i++) {
        void *result;
        if (pthread_join(threads[i], &result) != 0) return 4;
        cancelled += result == PTHREAD_CANCELED;
    }
    if (strcmp(how, "cancel") == 0) {
        printf("cancelled %u of %u\n", cancelled, count);
        fflush(stdout);
    }
    work_check(&work);
    say_asked();
    return 0;
}
