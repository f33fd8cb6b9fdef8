/* A library with cuBLAS's name that launches a kernel for each product. Its first HIDDEN_CALLS
 * products find the driver by libc's own dlsym, which no preload sees; later ones as any library
 * does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __x86_64__
#define DLSYM_VERSIONS "GLIBC_2.34", "GLIBC_2.2.5"
#else
#define DLSYM_VERSIONS "GLIBC_2.34", "GLIBC_2.17"
#endif
#define IMAGE "softgpu-module 1\nkernel product block_ns=2000 regs=32 shared=0 compute=0.5 bandwidth=0.1\n"

typedef void *(*look_up)(void *, const char *);
typedef int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static launch hidden, seen;
static void *kernel, *stream;
static int calls;

int cublasCreate_v2(void **handle) {
    static const char *versions[] = {DLSYM_VERSIONS};
    look_up own = (look_up)dlvsym(RTLD_DEFAULT, "dlsym", versions[0]);
    if (!own) own = (look_up)dlvsym(RTLD_DEFAULT, "dlsym", versions[1]);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *module;
    if (!own || !driver) return 14;
    hidden = (launch)own(driver, "cuLaunchKernel");
    seen = (launch)dlsym(driver, "cuLaunchKernel");
    int (*load)(void **, const char *) = (int (*)(void **, const char *))own(driver, "cuModuleLoadData");
    int (*get)(void **, void *, const char *) = (int (*)(void **, void *, const char *))own(driver, "cuModuleGetFunction");
    if (!load || !get || load(&module, IMAGE) || get(&kernel, module, "product")) return 14;
    *handle = &calls;
    return 0;
}

int cublasSetStream_v2(void *handle, void *to) {
    stream = to;
    return handle == &calls ? 0 : 1;
}

int cublasGetStream_v2(void *handle, void **from) {
    *from = stream;
    return handle == &calls ? 0 : 1;
}

int cublasSgemm_v2(void *handle, int transa, int transb, int m, int n, int k, const float *alpha, const float *a, int lda,
                   const float *b, int ldb, const float *beta, float *c, int ldc) {
    (void)transa, (void)transb, (void)k, (void)alpha, (void)a, (void)lda, (void)b, (void)ldb, (void)beta, (void)c, (void)ldc;
    const char *hidden_calls = getenv("HIDDEN_CALLS");
    if (handle != &calls) return 1;
    if (m == 0 || n == 0) return 0;
    launch way = calls++ < (hidden_calls ? atoi(hidden_calls) : 0) ? hidden : seen;
    return way(kernel, 4, 1, 1, 64, 1, 1, 0, stream, NULL, NULL) ? 13 : 0;
}
