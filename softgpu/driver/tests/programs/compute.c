/* The kernels that compute return correct results. */
#include "cuda_min.h"

enum { N = 300000, M = 17, K = 23, L = 29 };

static CUdeviceptr upload(const float *from, size_t count) {
    CUdeviceptr to;
    DO(cuMemAlloc_v2(&to, count * 4));
    DO(cuMemcpyHtoD_v2(to, from, count * 4));
    return to;
}

int main(void) {
    start();
    float *a = malloc(N * 4), *b = malloc(N * 4), *c = malloc(N * 4);
    unsigned n = N;
    for (int i = 0; i < N; i++) { a[i] = (float)(i % 1000); b[i] = (float)(i % 7) - 3; }
    CUdeviceptr da = upload(a, N), db = upload(b, N), dc, sum;
    DO(cuMemAlloc_v2(&dc, N * 4));
    DO(cuMemAlloc_v2(&sum, 4));
    run(function("add"), 1172, NULL, (void *[]){&da, &db, &dc, &n});
    DO(cuMemcpyDtoH_v2(c, dc, N * 4));
    for (int i = 0; i < N; i++) SHOW(c[i] == a[i] + b[i]);
    float two = 2;
    run(function("saxpy"), 1172, NULL, (void *[]){&two, &da, &dc, &n});
    DO(cuMemcpyDtoH_v2(c, dc, N * 4));
    for (int i = 0; i < N; i++) SHOW(c[i] == 3 * a[i] + b[i]);
    float one = 1, total;
    run(function("fill"), 1172, NULL, (void *[]){&dc, &one, &n});
    run(function("reduce"), 1172, NULL, (void *[]){&dc, &sum, &n});
    DO(cuMemcpyDtoH_v2(&total, sum, 4));
    SHOW(total == N);
    unsigned m = M, l = L, k = K;
    run(function("gemm"), 4, NULL, (void *[]){&da, &db, &dc, &m, &l, &k});
    DO(cuMemcpyDtoH_v2(c, dc, M * L * 4));
    for (int i = 0; i < M; i++)
        for (int j = 0; j < L; j++) {
            float expected = 0;
            for (int d = 0; d < K; d++) expected += a[i * K + d] * b[d * L + j];
            SHOW(c[i * L + j] == expected);
        }
    /* Fills of each width, a copy within the device, and one whose addresses determine the
     * direction. */
    DO(cuMemsetD8_v2(da, 0x11, 4));
    DO(cuMemsetD16_v2(da + 4, 0x2233, 2));
    DO(cuMemsetD32Async(da + 8, 0x44556677, 1, NULL));
    DO(cuMemcpyDtoD_v2(db, da, 12));
    unsigned words[3];
    DO(cuMemcpy((CUdeviceptr)words, db, 12));
    SHOW(words[0] == 0x11111111 && words[1] == 0x22332233 && words[2] == 0x44556677);
    DO(cuMemFree_v2(da));
    WANT(INVALID_VALUE, cuMemFree_v2(da));
    DO(cuDevicePrimaryCtxRelease_v2(0));
    return 0;
}
