/* Another library's interposer: a dlsym that calls the next dlsym, as profilers and HAMi-core
 * do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef void *(*dlsym_function)(void *, const char *);

static dlsym_function next_dlsym(void) {
    static dlsym_function next;
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    for (unsigned i = 0; next == NULL && i < sizeof versions / sizeof *versions; i++)
        next = (dlsym_function)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    if (next == NULL) abort();
    return next;
}

void *dlsym(void *handle, const char *symbol) {
    if (strcmp(symbol, "no_such_symbol_anywhere") == 0) return NULL;
    return next_dlsym()(handle, symbol);
}
