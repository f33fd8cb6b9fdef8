/* two_drivers FILE: uses the driver that it is linked with, and looks up functions in another copy
 * of it, FILE. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

unsigned cuInit(unsigned);
unsigned cuDevicePrimaryCtxRetain(void **, int);
unsigned cuCtxSetCurrent(void *);

int main(int argc, char **argv) {
    void *context = NULL;
    if (argc != 2 || cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, 0) != 0 || cuCtxSetCurrent(context) != 0) return 90;
    void *copy = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (copy == NULL) return 91;
    for (int round = 0; round < 2; round++) {
        printf("launch %d\n", dlsym(copy, "cuLaunchKernel") != NULL);
        printf("count %d\n", dlsym(copy, "cuMemAlloc_v2") != NULL);
    }
    return 4;
}
