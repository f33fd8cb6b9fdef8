/* children WHEN COUNT: COUNT children, made in every way in turn: fork, vfork, posix_spawn, clone,
 * each with and without calls of the driver in the child.
 *
 *   before   the parent has not used CUDA: children of fork and clone may use it without limits
 *   after    the parent uses CUDA on 16 threads meanwhile: children get the driver's error
 *   chain    each child forks the next, COUNT deep; only the last one uses CUDA
 *   first    the child is forked while another thread makes the first call of this process; 60 s at
 *            most
 *
 * Children end by exit, which runs all registered functions, or by _exit. The parent prints a line
 * after each: on a slow machine a hundred of them take minutes. */
#include "cuda_min.h"
#include <spawn.h>
#include <sys/syscall.h>

#define THREADS 16

extern char **environ;
static struct work work;
static atomic_int is_over;

static int wait_for(pid_t child) {
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Like fork, but without calls of the fork handlers. */
static pid_t clone_silently(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL); }

static void use_cuda(void) {
    struct work own;
    work_open(&own, PLAIN_IMAGE);
    for (int i = 0; i < 3; i++) work_launch(&own, NULL);
    work_check(&own);
}

/* Runs in a child of a process that uses CUDA: every call must return the same error. */
static int errors_of_child(void) {
    CUdeviceptr memory;
    float a = 1;
    unsigned n = ELEMENTS;
    void *parameters[] = {&a, &work.x, &work.y, &n};
    int errors = 0;
    for (int i = 0; i < 5; i++) {
        errors += cu.LaunchKernel(work.saxpy, 1, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL) != 0;
        errors += cu.MemAlloc(&memory, 4096) != 0;
        errors += cu.MemFree(work.x) != 0;
        errors += cu.CtxSynchronize() != 0;
    }
    return errors;
}

static int child(int is_before, int number) {
    alarm(60);
    int uses = number / 4 % 2 == 0;
    if (uses && is_before) {
        use_cuda();
        say_asked();
    }
    int errors = uses && !is_before ? errors_of_child() : 20;
    return errors == 20 ? 7 : 8;
}

static int start(int is_before, int number) {
    char *arguments[] = {"true", NULL};
    pid_t pid = -1;
    switch (number % 4) {
    case 0:
        pid = fork();
        if (pid == 0) exit(child(is_before, number));
        return wait_for(pid) == 7;
    case 1:
        pid = vfork();
        if (pid == 0) {
            execve("/bin/true", arguments, environ);
            _exit(127);
        }
        return wait_for(pid) == 0;
    case 2:
        if (posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, environ) != 0) return 0;
        return wait_for(pid) == 0;
    default:
        pid = clone_silently();
        if (pid == 0) {
            int status = child(is_before, number);
            if (number / 8 % 2 == 0) exit(status);
            _exit(status);
        }
        return wait_for(pid) == 7;
    }
}

static void *allocate_and_launch(void *unused) {
    (void)unused;
    CHECK(cu.CtxSetCurrent(work.context));
    while (!atomic_load(&is_over)) {
        CUdeviceptr memory;
        CHECK(cu.MemAlloc(&memory, 4096));
        work_launch(&work, NULL);
        CHECK(cu.MemFree(memory));
    }
    return NULL;
}

static int chain(int left) {
    if (left == 0) {
        use_cuda();
        say_asked();
        return 0;
    }
    /* A call that fails, but counts as a first call. */
    cu.MemFree(0);
    pid_t next = fork();
    if (next == 0) exit(chain(left - 1));
    return wait_for(next);
}

static void *first_call(void *unused) {
    (void)unused;
    cu.MemFree(0);
    return NULL;
}

/* In a new process, because each process has only one first call. */
static int fork_at_first_call(int spins) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, first_call, NULL) != 0) return 3;
    for (volatile int i = 0; i < spins; i++) {}
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        _exit(cu.MemFree(0) != 0 ? 7 : 8);
    }
    pthread_join(thread, NULL);
    return wait_for(pid);
}

static int after(int count) {
    pthread_t threads[THREADS];
    int right = 0;
    work_open(&work, PLAIN_IMAGE);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, allocate_and_launch, NULL) != 0) return 3;
    for (int i = 0; i < count; i++) {
        right += start(0, i);
        say("a child has ended");
    }
    atomic_store(&is_over, 1);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    work_check(&work);
    printf("%d of %d right\n", right, count);
    say_asked();
    return right != count;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int count = atoi(argv[2]), right = 0;
    open_door("linked");
    if (strcmp(argv[1], "after") == 0) return after(count);
    if (strcmp(argv[1], "chain") == 0) return chain(count);
    for (int i = 0; i < count; i++) {
        if (strcmp(argv[1], "before") == 0) {
            right += start(1, i);
            say("a child has ended");
            continue;
        }
        pid_t pid = fork();
        if (pid == 0) _exit(fork_at_first_call(i * 37 % 20000));
        right += wait_for(pid) == 7;
    }
    printf("%d of %d right\n", right, count);
    say_asked();
    return right != count;
}
