/* versions N PLUGIN...: each plugin makes N products with its own cuBLAS, in turns; each plugin has
 * two turns. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned), cuDeviceGet(int *, int), cuCtxCreate_v2(void **, unsigned, int), cuCtxSynchronize(void);

int main(int argc, char **argv) {
    int device, count = argc > 1 ? atoi(argv[1]) : 1;
    void *context;
    if (cuInit(0) || cuDeviceGet(&device, 0) || cuCtxCreate_v2(&context, 0, device)) return 90;
    for (int turn = 0; turn < 2; turn++) {
        for (int at = 2; at < argc; at++) {
            void *plugin = dlopen(argv[at], RTLD_NOW | RTLD_LOCAL);
            if (!plugin) return fprintf(stderr, "%s\n", dlerror()), 91;
            int (*multiply)(const char *, int) = (int (*)(const char *, int))dlsym(plugin, "multiply");
            if (!multiply || multiply(strrchr(argv[at], '/'), count)) return 92;
        }
    }
    return cuCtxSynchronize();
}
