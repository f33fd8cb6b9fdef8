/* lookups: eight threads, each with forty thousand look-ups by dlsym, dlvsym and cuGetProcAddress,
 * which must find the same address every time. The output does not depend on the library that
 * answers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 8
#define LOOKUPS 40000
#define KINDS 8

typedef unsigned (*get_proc_address)(const char *, void **, int, uint64_t, int *);

static void *library;
static get_proc_address proc;
static void *expected[KINDS];

static void *look_up(int kind) {
    void *address = NULL;
    switch (kind) {
    case 0: return dlsym(library, "cuLaunchKernel");
    case 1: return dlsym(RTLD_NEXT, "getenv");
    case 2: return dlsym(RTLD_DEFAULT, "qsort");
    case 3: return dlsym(library, "cuNoSuchFunction");
    case 4: return dlsym(library, "cuDeviceGet");
    case 5: return dlvsym(library, "cuMemAlloc_v2", "GLIBC_2.2.5");
    case 6: return dlvsym(RTLD_NEXT, "malloc", "GLIBC_2.2.5");
    default: return proc("cuMemAlloc", &address, 12000, 0, NULL) == 0 ? address : NULL;
    }
}

static void *run(void *wrong) {
    for (int n = 0; n < LOOKUPS; n++)
        if (look_up(n % KINDS) != expected[n % KINDS]) ++*(unsigned long *)wrong;
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    unsigned long wrong[THREADS] = {0};
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) return 91;
    proc = (get_proc_address)dlsym(library, "cuGetProcAddress_v2");
    for (int kind = 0; kind < KINDS; kind++) {
        expected[kind] = look_up(kind);
        printf("%d %s\n", kind, expected[kind] == NULL ? "nothing" : "found");
    }
    printf("dlvsym finds what dlsym finds: %d\n", expected[5] == dlsym(library, "cuMemAlloc_v2"));
    printf("dlvsym of a version that is not there: %p\n", dlvsym(RTLD_DEFAULT, "qsort", "GLIBC_0.1"));
    for (int t = 0; t < THREADS; t++) pthread_create(&threads[t], NULL, run, &wrong[t]);
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        printf("wrong %lu\n", wrong[t]);
    }
    return 3;
}
