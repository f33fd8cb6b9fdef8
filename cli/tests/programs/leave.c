/* leave cancel|jump: leaves a driver call that never returns, by pthread_cancel or by siglongjmp
 * out of a signal handler, and then makes the first context of the process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int (*init)(unsigned), (*create)(void **, unsigned, int), (*synchronize)(void);
static int *said;

static void *symbol(void *library, const char *name) {
    void *address = dlsym(library, name);
    if (address == NULL) exit(91);
    return address;
}

static void make_context(void *by) {
    void *context = NULL;
    int result = create(&context, 0, 0);
    printf("after %s: cuCtxCreate %d\n", (const char *)by, result);
    fflush(stdout);
}

static void *wait_in_the_driver(void *unused) {
    (void)unused;
    pthread_cleanup_push(make_context, "cancel");
    synchronize();
    pthread_cleanup_pop(0);
    return NULL;
}

static void wait_until_inside(void) {
    char byte;
    if (read(said[0], &byte, 1) != 1) exit(92);
}

static void leave_by_cancel(void) {
    pthread_t thread;
    void *ended = NULL;
    pthread_create(&thread, NULL, wait_in_the_driver, NULL);
    wait_until_inside();
    pthread_cancel(thread);
    pthread_join(thread, &ended);
    puts(ended == PTHREAD_CANCELED ? "cancelled" : "not cancelled");
}

static sigjmp_buf back;
static pthread_t jumper;

static void jump(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

static void *interrupt(void *unused) {
    (void)unused;
    wait_until_inside();
    pthread_kill(jumper, SIGUSR1);
    return NULL;
}

/* Far down the stack, as in a program whose handler jumps back to its main loop. */
static __attribute__((noinline)) void synchronize_deep_down(void) {
    volatile char room[65536];
    room[0] = 0;
    synchronize();
    if (room[0] != 0) abort();
}

static void leave_by_jump(void) {
    pthread_t thread;
    struct sigaction action = {.sa_handler = jump};
    sigaction(SIGUSR1, &action, NULL);
    jumper = pthread_self();
    pthread_create(&thread, NULL, interrupt, NULL);
    if (sigsetjmp(back, 1) == 0) synchronize_deep_down();
    pthread_join(thread, NULL);
    make_context("jump");
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) return 90;
    said = symbol(library, "said");
    if (pipe(said) != 0) return 93;
    init = symbol(library, "cuInit");
    create = symbol(library, "cuCtxCreate_v2");
    synchronize = symbol(library, "cuCtxSynchronize");
    init(0);
    if (strcmp(argv[1], "cancel") == 0) leave_by_cancel();
    else leave_by_jump();
    return 5;
}
