/* initialise: finds cuInit by dlsym and calls it twice. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) return 91;
    int (*init)(unsigned) = dlsym(library, "cuInit");
    if (init == NULL) return 92;
    printf("cuInit answers %d\n", init(0));
    printf("cuInit answers %d\n", init(0));
    return 2;
}
