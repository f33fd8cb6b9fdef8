/* Preloaded into a daemon: simulates a disk that does not answer. A file of learnt data is opened
 * only once the file that SLOW_WHILE names no longer exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int open64(const char *path, int flags, ...) {
    int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, "open64");
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, int);
    va_end(more);
    const char *slow = getenv("SLOW_WHILE"), *end = strrchr(path, '.');
    int is_learnt = strstr(path, "/learnt/") && end && !strcmp(end, ".toml");
    while (slow && is_learnt && !access(slow, F_OK)) usleep(1000);
    return next(path, flags, mode);
}
