/* products LIBRARY N: N products of a cuBLAS that is opened by its path, each waited for, then one
 * without elements and one that is refused. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int cuInit(unsigned), cuDeviceGet(int *, int), cuCtxCreate_v2(void **, unsigned, int);
int cuStreamCreate(void **, unsigned), cuStreamSynchronize(void *);

typedef int (*product)(void *, int, int, int, int, int, const float *, const float *, int, const float *, int, const float *,
                       float *, int);

int main(int argc, char **argv) {
    int device, count = argc > 2 ? atoi(argv[2]) : 1, refused = 0;
    void *context, *stream, *handle, *library = dlopen(argv[1], RTLD_NOW);
    if (!library || cuInit(0) || cuDeviceGet(&device, 0) || cuCtxCreate_v2(&context, 0, device)) return 90;
    int (*create)(void **) = (int (*)(void **))dlsym(library, "cublasCreate_v2");
    int (*set)(void *, void *) = (int (*)(void *, void *))dlsym(library, "cublasSetStream_v2");
    product sgemm = (product)dlsym(library, "cublasSgemm_v2");
    if (cuStreamCreate(&stream, 0) || create(&handle) || set(handle, stream)) return 91;
    for (int left = count; left > 0; left--) {
        refused += sgemm(handle, 0, 1, 64, 32, 16, NULL, NULL, 64, NULL, 32, NULL, NULL, 64) != 0;
        if (cuStreamSynchronize(stream)) return 92;
    }
    printf("%d refused, of nothing %d, without a handle %d\n", refused,
           sgemm(handle, 0, 1, 0, 32, 16, NULL, NULL, 64, NULL, 32, NULL, NULL, 64),
           sgemm(NULL, 0, 1, 64, 32, 16, NULL, NULL, 64, NULL, 32, NULL, NULL, 64));
    return cuStreamSynchronize(stream);
}
