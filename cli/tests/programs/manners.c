/* manners: prints the state of the process before and after it has used CUDA: signal handlers, file
 * mode mask, working folder, and whether its own handler receives a signal unchanged. */
#include "cuda_min.h"
#include <errno.h>
#include <sys/stat.h>

static volatile sig_atomic_t handled;
static volatile pid_t sender;

static void handle(int signal, siginfo_t *info, void *context) {
    handled = signal;
    sender = context != NULL ? info->si_pid : 0;
}

static void print_signals(const char *when) {
    printf("%s:", when);
    for (int signal = 1; signal < 65; signal++) {
        struct sigaction action;
        if (sigaction(signal, NULL, &action) != 0) continue;
        const char *what = action.sa_handler == SIG_DFL   ? "."
                           : action.sa_handler == SIG_IGN ? "i"
                           : (void *)action.sa_sigaction == (void *)handle ? "h"
                                                                           : "?";
        printf("%s", what);
    }
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    int count = 0;
    for (int signal = 1; signal < 65; signal++) count += sigismember(&blocked, signal) == 1;
    mode_t mask = umask(0);
    umask(mask);
    char folder[4096];
    printf(" %d blocked, mask %o, folder %s\n", count, (unsigned)mask, getcwd(folder, sizeof folder) ? folder : "?");
}

int main(void) {
    int mine[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP, SIGCHLD};
    umask(027);
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    action.sa_sigaction = handle;
    for (unsigned i = 0; i < sizeof mine / sizeof *mine; i++) sigaction(mine[i], &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    print_signals("before");
    struct work work;
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    errno = 77;
    for (int i = 0; i < 100; i++) work_launch(&work, NULL);
    printf("errno %d\n", errno);
    work_check(&work);
    print_signals("after");
    for (unsigned i = 0; i < sizeof mine / sizeof *mine; i++) {
        kill(getpid(), mine[i]);
        printf("%d handled, from %s\n", (int)handled, sender == getpid() ? "us" : "somebody");
    }
    say_asked();
    return 0;
}
