// The source of the images beside this file, compiled by NVRTC and nvFatbin 13.5 (see ../tests.rs).
// It never runs.
template <typename T> __global__ void scale(T *x, T a, int n, double d) {
    __shared__ T s[64];
    s[threadIdx.x % 64] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < n) x[threadIdx.x] = a * s[(threadIdx.x + 1) % 64] + (T)d;
}
extern "C" __device__ int counter = 7;
extern "C" __constant__ float table[16];
struct Big { char a[24]; short b; };
extern "C" __global__ void __launch_bounds__(256) big(char c, Big b, long l, float *o) { o[0] = b.a[c] + l + counter + table[c]; }
