/* real_runtime: prints the answers of NVIDIA's runtime without a device; linked with it, shared or
 * static. */
#include <stddef.h>
#include <stdio.h>

int cudaGetDeviceCount(int *);
int cudaDriverGetVersion(int *);
int cudaRuntimeGetVersion(int *);
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaStreamCreate(void **);
int cudaDeviceSynchronize(void);
int cudaGetLastError(void);
int cudaPeekAtLastError(void);
const char *cudaGetErrorName(int);

int main(void) {
    int number = -1;
    void *memory = NULL, *stream = NULL;
    int result = cudaDriverGetVersion(&number);
    printf("driver %d %d\n", result, number);
    result = cudaRuntimeGetVersion(&number);
    printf("runtime %d %d\n", result, number);
    result = cudaGetDeviceCount(&number);
    printf("count %d\n%s %d\n", result, cudaGetErrorName(result), number);
    printf("malloc %d\n", cudaMalloc(&memory, 1 << 20));
    printf("stream %d\n", cudaStreamCreate(&stream));
    printf("synchronize %d\n", cudaDeviceSynchronize());
    printf("peek %d\n", cudaPeekAtLastError());
    printf("last %d\n", cudaGetLastError());
    printf("free %d\n", cudaFree(NULL));
    return 3;
}
