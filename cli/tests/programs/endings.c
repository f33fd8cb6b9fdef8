/* endings HOW: uses CUDA, then ends in one of many ways, or becomes another program. */
#include "cuda_min.h"
#include <sys/resource.h>

static void at_exit(void) { say("atexit"); }
static void at_quick_exit_handler(void) { say("at_quick_exit"); }

static void *end_thread(void *how) {
    if (strcmp(how, "exit-thread") == 0) exit(11);
    return NULL;
}

int main(int argc, char **argv) {
    struct work work;
    const struct rlimit no_core = {0, 0};
    if (argc < 2) return 2;
    const char *how = argv[1];
    setrlimit(RLIMIT_CORE, &no_core);
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    for (int i = 0; i < 5; i++) work_launch(&work, NULL);
    work_check(&work);
    say_asked();
    atexit(at_exit);
    at_quick_exit(at_quick_exit_handler);
    if (strcmp(how, "return") == 0) return 5;
    if (strcmp(how, "exit") == 0) exit(6);
    if (strcmp(how, "_exit") == 0) _exit(7);
    if (strcmp(how, "quick_exit") == 0) quick_exit(8);
    if (strcmp(how, "exit-thread") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, end_thread, argv[1]);
        pause();
    }
    if (strcmp(how, "abort") == 0) abort();
    if (strcmp(how, "segv") == 0) *(volatile int *)8 = 1;
    if (strcmp(how, "kill") == 0) raise(SIGKILL);
    if (strcmp(how, "term") == 0) raise(SIGTERM);
    if (strcmp(how, "int") == 0) raise(SIGINT);
    if (strcmp(how, "hup") == 0) raise(SIGHUP);
    if (strcmp(how, "usr1") == 0) raise(SIGUSR1);
    if (strcmp(how, "pipe") == 0) raise(SIGPIPE);
    /* Runs the next program of the chain in this process. */
    if (strcmp(how, "exec") == 0 && argc > 2) {
        argv[1] = argv[0];
        execv("/proc/self/exe", argv + 1);
    }

    return 3;
}
