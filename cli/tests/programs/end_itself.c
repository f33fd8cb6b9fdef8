/* end_itself: a second thread sends SIGTERM to the process with work in flight, and prints a line
 * if it survives. */
#include "cuda_min.h"

static atomic_int is_created;

/* Waits until pthread_create is done, which blocks all signals in the first thread: the kernel
 * would then let even the first process of a PID namespace die of the signal. */
static void *end(void *unused) {
    (void)unused;
    while (!atomic_load(&is_created)) usleep(1000);
    kill(getpid(), SIGTERM);
    say("went on");
    _exit(9);
}

int main(void) {
    struct work work;
    pthread_t thread;
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    for (int i = 0; i < 100; i++) work_launch(&work, NULL);
    pthread_create(&thread, NULL, end, NULL);
    atomic_store(&is_created, 1);
    pthread_join(thread, NULL);
    return 0;
}
