/* end_itself: a second thread sends SIGTERM to the process with work in flight; if it comes back, it says so. */
#include "cuda_min.h"

static void *end(void *unused) {
    (void)unused;
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
    pthread_join(thread, NULL);
    return 0;
}
