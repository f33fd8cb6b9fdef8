/* A plugin that multiplies with the cuBLAS that it is linked with, and with no other: it refuses
 * another library's handle. */
#include <stdio.h>

int cublasCreate_v2(void **);
int cublasSgemm_v2(void *, int, int, int, int, int, const float *, const float *, int, const float *, int, const float *,
                   float *, int);

int multiply(const char *name, int count) {
    void *handle;
    int status = cublasCreate_v2(&handle);
    if (status) return status;
    for (int left = count; left > 0 && !status; left--) {
        status = cublasSgemm_v2(handle, 0, 1, 64, 32, 16, NULL, NULL, 64, NULL, 32, NULL, NULL, 64);
    }
    printf("%s: %d\n", name, status);
    return status;
}
