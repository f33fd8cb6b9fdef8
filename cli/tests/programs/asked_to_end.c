/* asked_to_end HOW WHERE: prints "ready", and waits for SIGTERM or SIGINT.
 *
 *   HOW    default | ignored | handler (set by signal) | siginfo (on its own stack, prints the
 *          signal's origin) | signalfd | sigwait (blocked, and taken by
 *          sigtimedwait) | late (handlers are set and removed while CUDA is in use)
 *   WHERE  idle | launching (one kernel after another without waiting for them) | held (the same,
 *          each of which may have to wait) | synchronising | capturing | contexts (makes and
 *          destroys them), with work in flight in all of them
 *
 * Two kernels are in flight at first, each for LASTING_NS of the environment (30 ms).
 *
 * A handled or taken signal asks the program to finish: it launches once more, checks the result
 * and exits with 7. After an ignored signal the program finishes when its standard input ends. */
#include "graph_min.h"
#include <sys/signalfd.h>

/* Some of libc's functions for signals are deprecated. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* A flag that libc adds. The kernel returns it to every program that has set a handler. */
#define SA_RESTORER 0x04000000u

static volatile sig_atomic_t is_asked;

static void say_now(const char *text) {
    if (write(1, text, strlen(text)) < 0) _exit(3);
}

static void say_name(int signal) {
    say_now(signal == SIGTERM ? "SIGTERM" : signal == SIGINT ? "SIGINT" : "another");
}

static void handle(int signal) {
    say_name(signal);
    say_now("\n");
    is_asked = 1;
}

static void handle_info(int signal, siginfo_t *info, void *context) {
    stack_t stack;
    sigaltstack(NULL, &stack);
    say_name(signal);
    say_now(info->si_signo == signal && info->si_code == SI_USER ? ", sent" : ", not sent");
    say_now(info->si_pid == getppid() ? " by the parent" : " by somebody");
    say_now(context != NULL && (stack.ss_flags & SS_ONSTACK) ? ", on its stack\n" : ", elsewhere\n");
    is_asked = 1;
}

static void set_info_handler(void) {
    static char room[1 << 16];
    stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
    action.sa_sigaction = handle_info;
    sigaltstack(&stack, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
}

/* The blocked signals. */
static sigset_t taken;
static int taken_from = -1;

static void block(const char *how) {
    sigemptyset(&taken);
    sigaddset(&taken, SIGTERM);
    sigaddset(&taken, SIGINT);
    if (!strcmp(how, "sigwait")) {
        sigprocmask(SIG_BLOCK, &taken, NULL);
    } else {
        pthread_sigmask(SIG_BLOCK, &taken, NULL);
        taken_from = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    }
}

static void say_taken(int signal, pid_t sender) {
    say_name(signal);
    say_now(sender == getppid() ? ", taken, by the parent\n" : ", taken, by somebody\n");
    is_asked = 1;
}

/* Takes a pending signal, if there is one. */
static void take(const char *how) {
    const struct timespec no_time = {0, 0};
    struct signalfd_siginfo from_fd;
    siginfo_t info;
    if (!strcmp(how, "sigwait") && sigtimedwait(&taken, &info, &no_time) > 0) say_taken(info.si_signo, info.si_pid);
    if (taken_from >= 0 && read(taken_from, &from_fd, sizeof from_fd) == sizeof from_fd)
        say_taken((int)from_fd.ssi_signo, (pid_t)from_fd.ssi_pid);
}

static void print_disposition(const char *when, int number) {
    struct sigaction action;
    sigaction(number, NULL, &action);
    printf("%s: %d %s, flags %x, %d %d %d blocked\n", when, number,
           action.sa_handler == SIG_DFL ? "default" : action.sa_handler == SIG_IGN ? "ignored" : "handled",
           (unsigned)action.sa_flags & ~SA_RESTORER, sigismember(&action.sa_mask, SIGUSR1),
           sigismember(&action.sa_mask, SIGTERM), sigismember(&action.sa_mask, SIGINT));
}

static const char *name(void (*found)(int)) {
    return found == SIG_DFL ? "default" : found == SIG_IGN ? "ignored" : found == SIG_ERR ? "error" : "handled";
}

/* Sets and restores the disposition by each of libc's functions, and prints the previous
 * disposition that each returns. */
static void change_and_restore(int number) {
    struct sigaction own = {.sa_handler = SIG_DFL, .sa_flags = SA_RESTART}, found;
    print_disposition("first", number);
    printf("signal: %s\n", name(signal(number, SIG_IGN)));
    printf("signal: %s\n", name(signal(number, SIG_DFL)));
    printf("sysv_signal: %s\n", name(sysv_signal(number, SIG_DFL)));
    printf("ssignal: %s\n", name(ssignal(number, SIG_IGN)));
    printf("sigset: %s\n", name(sigset(number, SIG_DFL)));
    printf("sigset: %s\n", name(sigset(number, SIG_DFL)));
    sigfillset(&own.sa_mask);
    sigaction(number, &own, NULL);
    print_disposition("own default", number);
    signal(number, SIG_IGN);
    sigaction(number, &own, &found);
    printf("sigaction: %s\n", name(found.sa_handler));
    printf("system: %d\n", system("kill -INT $$; exit 3") & 0x7f);
    printf("no signal: %s\n", name(signal(0, SIG_DFL)));
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const char *how = argv[1], *where = argv[2];
    struct work work;
    CUfunction lasting;
    CUstream stream;
    char image[256];
    const char *lasting_ns = getenv("LASTING_NS");
    /* A shell's background job inherits SIGINT as ignored. */
    signal(SIGINT, SIG_DFL);
    if (!strcmp(how, "handler")) signal(SIGTERM, handle), signal(SIGINT, handle);
    if (!strcmp(how, "siginfo")) set_info_handler();
    if (!strcmp(how, "signalfd") || !strcmp(how, "sigwait")) block(how);
    if (!strcmp(how, "ignored")) signal(SIGTERM, SIG_IGN), signal(SIGINT, SIG_IGN);
    open_door("linked");
    snprintf(image, sizeof image,
             "softgpu-module 1\nkernel lasting block_ns=%s regs=32 shared=0 compute=0.01 bandwidth=0.01\n",
             lasting_ns ? lasting_ns : "30000000");
    work_open(&work, image);
    CHECK(cu.ModuleGetFunction(&lasting, work.module, "lasting"));
    CHECK(cu.StreamCreate(&stream, 1));
    if (!strcmp(how, "late")) change_and_restore(SIGTERM), change_and_restore(SIGINT);
    for (int i = 0; i < 2; i++) launch(lasting, 1, NULL, NULL);
    if (!strcmp(where, "capturing")) {
        CHECK(cuStreamBeginCapture_v2(stream, GLOBAL));
        CHECK(cu.LaunchKernel(lasting, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    }
    say("ready");
    while (!is_asked && !is_told_to_end()) {
        if (!strcmp(where, "launching")) {
            /* Few enough that the stream does not become full soon. */
            for (int i = 0; i < 10; i++) work_launch(&work, NULL);
            poll(NULL, 0, 10);
        } else if (!strcmp(where, "synchronising")) {
            launch(lasting, 1, NULL, NULL);
            CHECK(cu.CtxSynchronize());
        } else if (!strcmp(where, "held")) {
            work_launch(&work, NULL);
            poll(NULL, 0, 20);
        } else if (!strcmp(where, "contexts")) {
            CUcontext context;
            CHECK(cu.CtxCreate(&context, 0, 0));
            CHECK(cu.CtxDestroy(context));
            CHECK(cu.CtxSetCurrent(work.context));
        } else {
            poll(NULL, 0, 1);
        }
        take(how);
    }
    if (!strcmp(where, "capturing")) {
        CUgraph graph;
        CHECK(cuStreamEndCapture(stream, &graph));
    }
    work_launch(&work, NULL);
    work_check(&work);
    say("finished");
    return is_asked ? 7 : 0;
}
