/* many_libraries LIBRARY...: its main thread has its own signal stack. Another thread loads the
 * libraries, which have thread locals, and sends SIGTERM to the main thread, which has not used
 * them. An allocation of memory on the signal stack ends the program with an error. */
#include "cuda_min.h"
#include <poll.h>

extern void *__libc_malloc(size_t bytes), *__libc_calloc(size_t count, size_t bytes), *__libc_realloc(void *block, size_t bytes);

static char stack[65536];

static void look(void) {
    char here;
    if (&here < stack || &here >= stack + sizeof stack) return;
    if (write(1, "memory is allocated in a signal's handler\n", 42)) _exit(9);
}

void *malloc(size_t bytes) { return look(), __libc_malloc(bytes); }
void *calloc(size_t count, size_t bytes) { return look(), __libc_calloc(count, bytes); }
void *realloc(void *block, size_t bytes) { return look(), __libc_realloc(block, bytes); }

static char **libraries;
static pthread_t main_thread;

static void *load(void *unused) {
    for (char **library = libraries; *library; library++)
        if (!dlopen(*library, RTLD_NOW)) _exit(5);
    say("loaded");
    pthread_kill(main_thread, SIGTERM);
    while (1) pause();
    return unused;
}

int main(int argc, char **argv) {
    struct work work;
    pthread_t thread;
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    if (argc < 2 || sigaltstack(&own, NULL)) return 2;
    libraries = argv + 1;
    main_thread = pthread_self();
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    work_launch(&work, NULL);
    if (pthread_create(&thread, NULL, load, NULL)) return 4;
    while (1) poll(NULL, 0, 1000);
}
