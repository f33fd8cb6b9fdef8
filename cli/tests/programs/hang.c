/* hang BLOCK_NS LAUNCHES [late | exits]: launches kernels of one block that run for BLOCK_NS and
 * never synchronises. Its main thread has a small signal stack with a guard page below it, as every
 * thread of a Rust program has. late: without that stack; once the program is asked to exit,
 * another thread sets a handler for SIGTERM, which prints the signal's origin and exits with 7.
 * exits: a handler for SIGTERM makes main return 7. */
#include "cuda_min.h"
#include <sys/auxv.h>
#include <sys/mman.h>

static void have_small_signal_stack(void) {
    size_t least = getauxval(AT_MINSIGSTKSZ), bytes = least > 8192 ? (least + 4095) & ~(size_t)4095 : 8192;
    char *room = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = room + 4096, .ss_size = bytes};
    if (room == MAP_FAILED || mprotect(room, 4096, PROT_NONE) || sigaltstack(&stack, NULL)) _exit(4);
}

static void handle(int signal, siginfo_t *info, void *context) {
    int is_known = signal == SIGTERM && info->si_code == SI_USER && info->si_pid == getppid() && context != NULL;
    const char *text = is_known ? "handled, sent by the parent\n" : "handled\n";
    _exit(write(1, text, strlen(text)) < 0 ? 3 : 7);
}

static volatile sig_atomic_t is_asked;

static void ask(int signal) { is_asked = signal; }

static void *set_handler_late(void *unused) {
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    wait_until_told_to_end();
    action.sa_sigaction = handle;
    sigaction(SIGTERM, &action, NULL);
    /* Without stdio: the first thread may have been stopped while it holds stdio's lock. */
    if (write(1, "set\n", 4) != 4) _exit(3);
    while (1) pause();
    return unused;
}

int main(int argc, char **argv) {
    pthread_t thread;
    if (argc != 3 && argc != 4) return 2;
    int is_late = argc == 4 && !strcmp(argv[3], "late");
    if (argc == 4 && !is_late) signal(SIGTERM, ask);
    if (argc == 3) have_small_signal_stack();
    char image[256];
    struct work work;
    CUfunction hang;
    snprintf(image, sizeof image,
             "softgpu-module 1\nkernel hang block_ns=%s regs=32 shared=0 compute=0.01 bandwidth=0.01\n", argv[1]);
    open_door("linked");
    work_open(&work, image);
    CHECK(cu.ModuleGetFunction(&hang, work.module, "hang"));
    for (int i = atoi(argv[2]); i > 0; i--) launch(hang, 1, NULL, NULL);
    if (is_late) {
        /* The first thread must get the signal; the other one must be free to set the handler. */
        sigset_t terminate;
        sigemptyset(&terminate);
        sigaddset(&terminate, SIGTERM);
        pthread_sigmask(SIG_BLOCK, &terminate, NULL);
        if (pthread_create(&thread, NULL, set_handler_late, NULL)) _exit(5);
        pthread_sigmask(SIG_UNBLOCK, &terminate, NULL);
    }
    say("launched");
    while (argc == 4 && !is_late && !is_told_to_end_within(10)) {
        if (is_asked) return 7;
    }
    wait_until_told_to_end();
    _exit(0);
}
