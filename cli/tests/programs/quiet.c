/* quiet HOW LAUNCHES: launches from a thread whose system calls, locks and memory are watched. If
 * HOW is `strict`, the thread may only read, write and exit: the kernel kills it at any other
 * system call (seccomp, strict mode), and at a read of the time stamp counter, which a read of the
 * clock uses. The program counts allocations, locks and look-ups in the environment: its versions
 * of these functions precede libc's. */
#include "cuda_min.h"
#include <sys/prctl.h>
#include <sys/syscall.h>

static _Thread_local int is_watched;
static struct { unsigned allocations, locks, look_ups; } seen;
static struct work work;
static unsigned long launches;

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);

void *malloc(size_t bytes) { seen.allocations += is_watched; return __libc_malloc(bytes); }
void *calloc(size_t count, size_t bytes) { seen.allocations += is_watched; return __libc_calloc(count, bytes); }
void *realloc(void *old, size_t bytes) { seen.allocations += is_watched; return __libc_realloc(old, bytes); }
void free(void *old) { seen.allocations += is_watched; __libc_free(old); }

char *getenv(const char *name) {
    seen.look_ups += is_watched;
    size_t length = strlen(name);
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++)
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') return *entry + length + 1;
    return NULL;
}

char *secure_getenv(const char *name) { return getenv(name); }

static int (*real_lock)(pthread_mutex_t *);

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    if (real_lock == NULL) real_lock = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
    seen.locks += is_watched;
    return real_lock(mutex);
}

static void *run(void *how) {
    CHECK(cu.CtxSetCurrent(work.context));
    for (int i = 0; i < 100; i++) work_launch(&work, NULL);
    float a = 1;
    unsigned n = ELEMENTS;
    void *parameters[] = {&a, &work.x, &work.y, &n};
    CUresult worst = 0;
    is_watched = 1;
    if (strcmp(how, "strict") == 0) {
        if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV) != 0 || prctl(PR_SET_SECCOMP, 1) != 0) _exit(3);
    }
    for (unsigned long i = 0; i < launches; i++) {
        CUresult result = cu.LaunchKernel(work.saxpy, ELEMENTS / 256, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL);
        if (result > worst) worst = result;
    }
    is_watched = 0;
    if (worst == 0) atomic_fetch_add(&asked.launches, launches);
    /* pthread_exit would make other system calls. */
    if (strcmp(how, "strict") == 0) syscall(SYS_exit, 0);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    launches = strtoul(argv[2], NULL, 10);
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, argv[1]) != 0) return 3;
    pthread_join(thread, NULL);
    printf("%u allocations, %u locks, %u look-ups\n", seen.allocations, seen.locks, seen.look_ups);
    say_asked();
    return 0;
}
