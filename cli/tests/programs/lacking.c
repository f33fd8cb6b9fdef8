/* lacking: looks up entry points that its driver lacks, and calls those that it finds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

static void look(void *library, const char *where, const char *name) {
    unsigned (*function)(void *, void *, void *, void *) = dlsym(library, name);
    if (function == NULL) printf("%s %s: not there\n", where, name);
    else printf("%s %s: answers %u\n", where, name, function(NULL, NULL, NULL, NULL));
}

int main(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) return 91;
    look(library, "driver", "cuLaunchKernelEx");
    look(library, "driver", "cuDeviceGetName");
    look(RTLD_DEFAULT, "program", "cuLaunchKernelEx");
    look(RTLD_DEFAULT, "program", "cuDeviceGetName");
    return 1;
}
