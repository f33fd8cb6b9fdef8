/* Another library's interposer: counts getenv and passes it on to what RTLD_NEXT finds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

static _Thread_local int depth;

char *getenv(const char *name) {
    static char *(*next)(const char *);
    /* Found on a call that comes from dlsym itself: an interposer of dlsym that reads the
     * environment would not end. */
    if (depth > 0) return NULL;
    if (next == NULL) {
        depth++;
        next = (char *(*)(const char *))dlsym(RTLD_NEXT, "getenv");
        depth--;
    }
    if (next == NULL || (void *)next == (void *)getenv) abort();
    return next(name);
}
