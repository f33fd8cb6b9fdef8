/* flags HOW: the state of the process while a handler of SIGTERM runs, with work in flight: it must
 * be the kernel's usual state, without traces of Pillion. The program handles the signal at most
 * twice; the second runs on top of the first if the flags allow that.
 *
 *   plain | mask (SIGUSR1 in sa_mask) | nodefer | restart (a read continues) | resethand (the
 *             second signal gets the default action)
 *   context   the thread's position, registers, mask and stack at the signal; it continues with the
 *             values that the handler sets
 *   queued    the program sends the signal to itself with a value */
#include "cuda_min.h"
#include <errno.h>
#include <sys/ucontext.h>

#define FRAME_BYTES_MAX (1 << 20)
#define BEFORE 0x5111aaaa2222bbbbu
#define AFTER 0x1234567890abcdefu

#if defined(__x86_64__)
#define REGISTER "r12"
#define CONTEXT_REGISTER(context) (context)->uc_mcontext.gregs[REG_R12]
#define CONTEXT_PC(context) (context)->uc_mcontext.gregs[REG_RIP]
#define CONTEXT_SP(context) (context)->uc_mcontext.gregs[REG_RSP]
#else
#define REGISTER "x19"
#define CONTEXT_REGISTER(context) (context)->uc_mcontext.regs[19]
#define CONTEXT_PC(context) (context)->uc_mcontext.pc
#define CONTEXT_SP(context) (context)->uc_mcontext.sp
#endif

static const char *how;
static volatile sig_atomic_t depth, handled;
static char room[1 << 16];
static uintptr_t in_main;

static void say_now(const char *text) {
    if (write(1, text, strlen(text)) < 0) _exit(3);
}

static void say_if(int is_so, const char *text) {
    if (is_so) say_now(text);
}

static void say_set(const char *what, const sigset_t *set) {
    say_now(what);
    say_if(sigismember(set, SIGTERM), " TERM");
    say_if(sigismember(set, SIGINT), " INT");
    say_if(sigismember(set, SIGUSR1), " USR1");
    say_if(sigismember(set, SIGUSR2), " USR2");
    say_now("\n");
}

static void say_blocked(const char *what) {
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    say_set(what, &blocked);
}

static void handle_user(int number) {
    (void)number;
    say_now(depth ? "USR1 inside\n" : "USR1 outside\n");
}

static void say_disposition(int number) {
    struct sigaction now;
    sigaction(number, NULL, &now);
    say_now(now.sa_handler == SIG_DFL ? "now default" : "now handled");
    say_if((now.sa_flags & SA_SIGINFO) != 0, " SIGINFO");
    say_if((now.sa_flags & SA_ONSTACK) != 0, " ONSTACK");
    say_if((now.sa_flags & SA_NODEFER) != 0, " NODEFER");
    say_if((now.sa_flags & SA_RESTART) != 0, " RESTART");
    say_if((now.sa_flags & (int)SA_RESETHAND) != 0, " RESETHAND");
    say_set(", masks", &now.sa_mask);
}

/* Prints where the thread was, and sets a register and the mask that it continues with. */
static void say_context(ucontext_t *context) {
    char here;
    Dl_info found = {0}, own = {0};
    uintptr_t stack = (uintptr_t)CONTEXT_SP(context), frame = (uintptr_t)&here;
    dladdr((void *)(uintptr_t)CONTEXT_PC(context), &found);
    dladdr(room, &own);
    say_if(found.dli_fbase == own.dli_fbase, "met in the program\n");
    say_if(in_main - stack < FRAME_BYTES_MAX, "on the thread's stack\n");
    say_if(frame - (uintptr_t)room < sizeof room, "handled on the handler's\n");
    say_if(context->uc_stack.ss_sp == room && context->uc_stack.ss_size == sizeof room, "which it names\n");
    say_if((uint64_t)CONTEXT_REGISTER(context) == BEFORE, "with its registers\n");
    say_set("and its mask:", &context->uc_sigmask);
    CONTEXT_REGISTER(context) = (long long)AFTER;
    sigaddset(&context->uc_sigmask, SIGUSR1);
}

static void handle(int number, siginfo_t *info, void *context) {
    depth++;
    say_now(depth == 1 ? "handles" : "handles on top");
    say_now(info->si_signo == SIGTERM && number == SIGTERM ? " TERM" : " another");
    say_if(info->si_code == SI_USER, ", sent");
    say_if(info->si_code == SI_TKILL, ", raised");
    say_if(info->si_code == SI_QUEUE && info->si_value.sival_int == 4711, ", queued with 4711");
    say_if(info->si_pid == getppid(), " by the parent");
    say_if(info->si_pid == getpid(), " by itself");
    say_if(info->si_uid == getuid(), " of its user");
    say_blocked("\nblocked:");
    say_disposition(number);
    if (!strcmp(how, "context")) {
        say_context(context);
    } else if (handled++ == 0) {
        raise(SIGUSR1);
        raise(number);
    }
    say_now("handled\n");
    depth--;
    handled++;
}

static volatile sig_atomic_t is_spinning;

/* Prints "ready" from another thread: if the spinning thread printed it, the signal could arrive
 * before the thread is back in its loop. */
static void *tell(void *unused) {
    (void)unused;
    while (!is_spinning) {}
    say("ready");
    return NULL;
}

/* Stays in the program with a known value in a register, until the handler changes that
 * register. */
static void spin(void) {
    char here;
    in_main = (uintptr_t)&here;
    register uint64_t known __asm__(REGISTER) = BEFORE;
    is_spinning = 1;
    do __asm__ volatile("" : "+r"(known)); while (known == BEFORE);
    say_now(known == AFTER ? "goes on with the handler's\n" : "goes on\n");
    say_blocked("blocked:");
}

static void set_handler(void) {
    const stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO}, user = {.sa_handler = handle_user};
    if (!strcmp(how, "mask")) sigaddset(&action.sa_mask, SIGUSR1);
    if (!strcmp(how, "nodefer")) action.sa_flags |= SA_NODEFER;
    if (!strcmp(how, "restart")) action.sa_flags |= SA_RESTART;
    if (!strcmp(how, "resethand")) action.sa_flags |= (int)SA_RESETHAND;
    if (!strcmp(how, "context")) action.sa_flags |= SA_ONSTACK;
    sigaltstack(&stack, NULL);
    sigaction(SIGTERM, &action, NULL);
    user.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &user, NULL);
}

static void wait_for_it(void) {
    pthread_t teller;
    sigset_t all, before;
    char byte;
    if (!strcmp(how, "context")) {
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before);
        pthread_create(&teller, NULL, tell, NULL);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        spin();
        pthread_join(teller, NULL);
        return;
    }
    say("ready");
    if (!strcmp(how, "queued")) {
        sigqueue(getpid(), SIGTERM, (union sigval){.sival_int = 4711});
    } else {
        ssize_t count = read(0, &byte, 1);
        say_now(count == 1 ? "read on\n" : errno == EINTR ? "interrupted\n" : "failed\n");
    }
}

int main(int argc, char **argv) {
    struct work work;
    CUfunction lasting;
    sigset_t blocked;
    if (argc != 2) return 2;
    how = argv[1];
    set_handler();
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    open_door("linked");
    work_open(&work, "softgpu-module 1\nkernel lasting block_ns=200000000 regs=32 shared=0 compute=0.01 bandwidth=0.01\n");
    CHECK(cu.ModuleGetFunction(&lasting, work.module, "lasting"));
    for (int i = 0; i < 2; i++) launch(lasting, 1, NULL, NULL);
    wait_for_it();
    work_launch(&work, NULL);
    work_check(&work);
    say("finished");
    return 7;
}
