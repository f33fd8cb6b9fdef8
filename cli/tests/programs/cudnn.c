/* A library with cuDNN's name: each call prints its arguments and returns its own number. A
 * convolution launches a kernel, a backend's execution two. Descriptors are lists: type, count of
 * dimensions, dimensions. With HIDDEN in the environment launches find the driver by libc's own
 * dlsym, which no preload sees. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __x86_64__
#define DLSYM_VERSIONS "GLIBC_2.34", "GLIBC_2.2.5"
#else
#define DLSYM_VERSIONS "GLIBC_2.34", "GLIBC_2.17"
#endif

#define IMAGE "softgpu-module 1\nkernel convolve block_ns=2000 regs=32 shared=0 compute=0.5 bandwidth=0.1\n"

int cuModuleLoadData(void **, const char *), cuModuleGetFunction(void **, void *, const char *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

typedef int (*launch_kernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                             void **);
typedef void *(*look_up)(void *, const char *);

static launch_kernel way(void) {
    static const char *versions[] = {DLSYM_VERSIONS};
    if (!getenv("HIDDEN")) return cuLaunchKernel;
    look_up own = (look_up)dlvsym(RTLD_DEFAULT, "dlsym", versions[0]);
    if (!own) own = (look_up)dlvsym(RTLD_DEFAULT, "dlsym", versions[1]);
    return (launch_kernel)own(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernel");
}

static int launch(int times) {
    static void *module, *kernel;
    if (!kernel && (cuModuleLoadData(&module, IMAGE) || cuModuleGetFunction(&kernel, module, "convolve"))) return 8;
    for (; times > 0; times--)
        if (way()(kernel, 4, 1, 1, 64, 1, 1, 0, NULL, NULL, NULL)) return 9;
    return 0;
}

int cudnnGetStream(void *handle, void **stream) {
    *stream = NULL;
    return handle ? 0 : 1;
}

int cudnnGetTensorNdDescriptor(const int *tensor, int wanted, int *type, int *count, int *dimensions, int *strides) {
    *type = tensor[0], *count = tensor[1];
    for (int at = 0; at < wanted && at < *count; at++) dimensions[at] = tensor[2 + at], strides[at] = 1;
    return 0;
}

int cudnnGetFilterNdDescriptor(const int *filter, int wanted, int *type, int *format, int *count, int *dimensions) {
    *type = filter[0], *format = 0, *count = filter[1];
    for (int at = 0; at < wanted && at < *count; at++) dimensions[at] = filter[2 + at];
    return 0;
}

int cudnnConvolutionForward(void *handle, const void *alpha, const void *x_desc, const void *x, const void *w_desc,
                            const void *w, const void *conv_desc, int algo, void *space, size_t bytes, const void *beta,
                            const void *y_desc, void *y) {
    printf("convolution %p %p %d %p %p %p %d %p %zu %p %p %p\n", handle, alpha, x_desc != NULL, x, w, conv_desc, algo, space,
           bytes, beta, y_desc, y);
    return w_desc ? launch(1) : 3000;
}

int cudnnBatchNormalizationForwardTraining(void *handle, int mode, const void *alpha, const void *beta, const void *x_desc,
                                           const void *x, const void *y_desc, void *y, const void *bn_desc,
                                           const void *scale, const void *bias, double factor, void *mean, void *variance,
                                           double epsilon, void *saved_mean, void *saved_variance) {
    printf("batch norm %p %d %p %p %d %p %p %p %p %p %p %g %p %p %g %p %p\n", handle, mode, alpha, beta, x_desc != NULL, x,
           y_desc, y, bn_desc, scale, bias, factor, mean, variance, epsilon, saved_mean, saved_variance);
    return 12345;
}

int cudnnRNNForward(void *handle, void *rnn, int mode, const int *lengths, void *x_desc, const void *x, void *y_desc, void *y,
                    void *h_desc, const void *hx, void *hy, void *c_desc, const void *cx, void *cy, size_t weight_bytes,
                    const void *weights, size_t work_bytes, void *work, size_t reserve_bytes, void *reserve) {
    printf("rnn %p %p %d %p %p %p %p %p %p %p %p %p %p %p %zu %p %zu %p %zu %p\n", handle, rnn, mode, (const void *)lengths,
           x_desc, x, y_desc, y, h_desc, hx, hy, c_desc, cx, cy, weight_bytes, weights, work_bytes, work, reserve_bytes,
           reserve);
    return -7;
}

int cudnnBackendExecute(void *handle, void *plan, void *pack) {
    printf("backend %p %p %p\n", handle, plan, pack);
    return launch(2);
}
