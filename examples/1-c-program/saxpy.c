/* y = a x + y on the GPU, through the CUDA driver API.
 *
 * The declarations below follow the public API, so that the program compiles without a CUDA
 * toolkit; with a toolkit, include <cuda.h> instead. The module is a text for the software GPU,
 * which has the kernel `saxpy` in every such module. On an NVIDIA GPU load PTX or a cubin
 * instead. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef void *CUcontext, *CUmodule, *CUfunction, *CUstream;

/* Finds an entry point of the driver, for a program that does not link with the driver. */
static void *entry_point(const char *name) {
    static void *driver;
    if (!driver) driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = driver ? dlsym(driver, name) : NULL;
    if (!found) {
        fprintf(stderr, "no %s: %s\n", name, dlerror());
        exit(1);
    }
    return found;
}

static void check(const char *call, int result) {
    if (result == 0) return;
    fprintf(stderr, "%s: CUresult %d\n", call, result);
    exit(1);
}

/* CALL(cuInit, (unsigned), 0) finds cuInit, calls it with 0, and checks the result. */
#define CALL(name, parameters, ...) check(#name, ((int (*) parameters)entry_point(#name))(__VA_ARGS__))

enum { N = 1 << 16 };

int main(void) {
    static float x[N], y[N];
    for (int i = 0; i < N; i++) {
        x[i] = (float)i;
        y[i] = 1;
    }
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction saxpy;
    CUdeviceptr on_x, on_y;
    CALL(cuInit, (unsigned), 0);
    CALL(cuDeviceGet, (CUdevice *, int), &device, 0);
    CALL(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice), &context, 0, device);
    CALL(cuModuleLoadData, (CUmodule *, const void *), &module, "softgpu-module 1\n");
    CALL(cuModuleGetFunction, (CUfunction *, CUmodule, const char *), &saxpy, module, "saxpy");
    CALL(cuMemAlloc_v2, (CUdeviceptr *, size_t), &on_x, sizeof x);
    CALL(cuMemAlloc_v2, (CUdeviceptr *, size_t), &on_y, sizeof y);
    CALL(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t), on_x, x, sizeof x);
    CALL(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t), on_y, y, sizeof y);

    float a = 2;
    unsigned n = N;
    void *parameters[] = {&a, &on_x, &on_y, &n};
    CALL(cuLaunchKernel,
         (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **),
         saxpy, N / 256, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL);
    CALL(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t), y, on_y, sizeof y);

    for (int i = 0; i < N; i++) {
        if (y[i] != a * x[i] + 1) {
            fprintf(stderr, "y[%d] is %g, not %g\n", i, (double)y[i], (double)(a * x[i] + 1));
            return 1;
        }
    }
    printf("%d results are right\n", N);
    return 0;
}
