/* Another library's interposer: counts calls of getenv and passes them on to the function that
 * RTLD_NEXT finds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

static _Thread_local int depth;

char *getenv(const char *name) {
    static char *(*next)(const char *);
    /* A call from inside dlsym returns null: with an interposer of dlsym that reads the
     * environment, the look-up would never end. */
    if (depth > 0) return NULL;
    if (next == NULL) {
        depth++;
        next = (char *(*)(const char *))dlsym(RTLD_NEXT, "getenv");
        depth--;
    }
    if (next == NULL || (void *)next == (void *)getenv) abort();
    return next(name);
}
