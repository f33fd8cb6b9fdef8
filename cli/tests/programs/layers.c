/* layers LIBRARY [N]: calls of a cuDNN that is opened by its path, each with distinct arguments:
 * the arguments that arrive must be those that were passed. With N makes so many convolutions
 * instead. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

int cuInit(unsigned), cuDeviceGet(int *, int), cuCtxCreate_v2(void **, unsigned, int), cuCtxSynchronize(void);

#define P(number) ((void *)(size_t)(number))
typedef int (*convolution)(void *, void *, void *, void *, void *, void *, void *, int, void *, size_t, void *, void *, void *);
typedef int (*batch_norm)(void *, int, void *, void *, void *, void *, void *, void *, void *, void *, void *, double, void *,
                          void *, double, void *, void *);
typedef int (*rnn)(void *, void *, int, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                   size_t, void *, size_t, void *, size_t, void *);
typedef int (*execute)(void *, void *, void *);

int main(int argc, char **argv) {
    int device, tensor[] = {2, 4, 32, 3, 224, 224}, filter[] = {2, 4, 64, 3, 7, 7}, vector[] = {0, 3, 5, 6, 7};
    void *context, *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library || cuInit(0) || cuDeviceGet(&device, 0) || cuCtxCreate_v2(&context, 0, device)) return 90;
    convolution convolve = (convolution)dlsym(library, "cudnnConvolutionForward");
    batch_norm norm = (batch_norm)dlsym(library, "cudnnBatchNormalizationForwardTraining");
    rnn recur = (rnn)dlsym(library, "cudnnRNNForward");
    execute run = (execute)dlsym(library, "cudnnBackendExecute");
    for (int left = argc > 2 ? atoi(argv[2]) : 0; left > 0; left--)
        if (convolve(P(1), P(2), tensor, P(3), filter, P(4), P(5), -6, P(7), 8, P(9), P(10), P(11))) return 91;
    if (argc > 2) return cuCtxSynchronize();
    printf("%d\n", convolve(P(1), P(2), tensor, P(3), filter, P(4), P(5), -6, P(7), 8, P(9), P(10), P(11)));
    printf("%d\n", convolve(NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, NULL, NULL, NULL));
    printf("%d\n", norm(P(1), 2, P(3), P(4), vector, P(5), P(6), P(7), P(8), P(9), P(10), 0.125, P(11), P(12), 1e-5, P(13), P(14)));
    printf("%d\n", recur(P(1), P(2), 3, P(4), P(5), P(6), P(7), P(8), P(9), P(10), P(11), P(12), P(13), P(14), 15, P(16), 17,
                         P(18), 19, P(20)));
    printf("%d\n", run(P(1), P(2), P(3)));
    return cuCtxSynchronize();
}
