/* A program of the CUDA runtime, as a compiler would make it: a fat binary's wrapper, registered at
 * the start with one kernel and its host half, a launch by <<<…>>>, copies, streams, events, a
 * captured graph, errors. The image is a text for the software GPU, whose kernels compute, so
 * results are checked. Prototypes are those of cuda_runtime_api.h and crt/host_runtime.h. The
 * output must be that of a run without Pillion. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned x, y, z; } dim3;
typedef void *cudaStream_t, *cudaEvent_t, *cudaGraph_t, *cudaGraphExec_t, *cudaKernel_t;
struct wrapper { int magic, version; const void *content; void *file; };
struct attributes { size_t shared, constant, local; int numbers[13]; int reserved[16]; };
struct pointer { int type, device; void *on_device, *on_host; long reserved[8]; };

void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **);
void __cudaUnregisterFatBinary(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, dim3 *, dim3 *, int *);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, cudaStream_t);
int __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);
int __cudaGetKernel(cudaKernel_t *, const void *);
int __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void **, size_t, cudaStream_t);
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, cudaStream_t);
int cudaFuncGetAttributes(struct attributes *, const void *);
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *, const void *, int, size_t);
int cudaMalloc(void **, size_t), cudaFree(void *), cudaMallocHost(void **, size_t), cudaFreeHost(void *);
int cudaMemcpy(void *, const void *, size_t, int), cudaMemcpyAsync(void *, const void *, size_t, int, cudaStream_t);
int cudaMemsetAsync(void *, int, size_t, cudaStream_t), cudaMemGetInfo(size_t *, size_t *);
int cudaPointerGetAttributes(struct pointer *, const void *);
int cudaStreamCreate(cudaStream_t *), cudaStreamDestroy(cudaStream_t), cudaStreamSynchronize(cudaStream_t);
int cudaStreamBeginCapture(cudaStream_t, int), cudaStreamEndCapture(cudaStream_t, cudaGraph_t *);
int cudaGraphInstantiate(cudaGraphExec_t *, cudaGraph_t, unsigned long long), cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
int cudaGraphExecDestroy(cudaGraphExec_t), cudaGraphDestroy(cudaGraph_t);
int cudaEventCreate(cudaEvent_t *), cudaEventRecord(cudaEvent_t, cudaStream_t), cudaEventDestroy(cudaEvent_t);
int cudaEventSynchronize(cudaEvent_t), cudaEventElapsedTime(float *, cudaEvent_t, cudaEvent_t);
int cudaDeviceSynchronize(void), cudaGetDeviceCount(int *), cudaSetDevice(int), cudaGetDevice(int *);
int cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, unsigned long long, int *);
int cudaGetLastError(void), cudaPeekAtLastError(void), cudaGraphAddNode(void);
const char *cudaGetErrorName(int), *cudaGetErrorString(int);

enum { N = 1 << 12, TO_DEVICE = 1, TO_HOST = 2, MIB = 1 << 20 };
static int launches, h2d, d2h;
static void **image;
static struct wrapper wrapper = {0x466243b1, 1, "softgpu-module 1\n", NULL};

/* Prints the result of a call. */
#define SAY(call) printf("%s: %s\n", #call, cudaGetErrorName(call))
static void must(const char *call, int error) {
    if (!error) return;
    printf("%s: %s (%s)\n", call, cudaGetErrorName(error), cudaGetErrorString(error));
    exit(1);
}
#define MUST(call) must(#call, call)

/* The host half of the kernel, as compilers write it since CUDA 12.8. */
static void saxpy(float a, void *x, void *y, unsigned n) {
    static cudaKernel_t kernel;
    if (!kernel) MUST(__cudaGetKernel(&kernel, (const void *)saxpy));
    void *arguments[] = {&a, &x, &y, &n};
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
    MUST(__cudaPopCallConfiguration(&grid, &block, &shared, &stream));
    MUST(__cudaLaunchKernel(kernel, grid, block, arguments, shared, stream));
    launches++;
}

static void unregistered(void) {}

__attribute__((constructor)) static void start(void) {
    image = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(image, (const char *)saxpy, (char *)saxpy, "saxpy", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFatBinaryEnd(image);
}
__attribute__((destructor)) static void end(void) { __cudaUnregisterFatBinary(image); }

static void *error_of_another_thread(void *seen) {
    *(int *)seen = cudaPeekAtLastError();
    return NULL;
}

static void compute(void) {
    static float x[N], y[N];
    void *on_x, *on_y, *pinned;
    cudaStream_t stream;
    for (int i = 0; i < N; i++) x[i] = (float)i, y[i] = 1;
    MUST(cudaMalloc(&on_x, sizeof x));
    MUST(cudaMalloc(&on_y, sizeof y));
    MUST(cudaMallocHost(&pinned, sizeof y));
    MUST(cudaStreamCreate(&stream));
    MUST(cudaMemcpy(on_x, x, sizeof x, TO_DEVICE)), h2d += sizeof x;
    MUST(cudaMemcpyAsync(on_y, y, sizeof y, TO_DEVICE, stream)), h2d += sizeof y;
    if (!__cudaPushCallConfiguration((dim3){N / 256, 1, 1}, (dim3){256, 1, 1}, 0, stream)) saxpy(2, on_x, on_y, N);

    /* The same three times more, by a graph. */
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    MUST(cudaStreamBeginCapture(stream, 0));
    if (!__cudaPushCallConfiguration((dim3){N / 256, 1, 1}, (dim3){256, 1, 1}, 0, stream)) saxpy(2, on_x, on_y, N);
    launches--;
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t before, after;
    MUST(cudaEventCreate(&before));
    MUST(cudaEventCreate(&after));
    MUST(cudaEventRecord(before, stream));
    for (int i = 0; i < 3; i++) MUST(cudaGraphLaunch(exec, stream));
    MUST(cudaEventRecord(after, stream));
    MUST(cudaMemcpyAsync(pinned, on_y, sizeof y, TO_HOST, stream)), d2h += sizeof y;
    MUST(cudaStreamSynchronize(stream));
    float ms = -1;
    MUST(cudaEventElapsedTime(&ms, before, after));
    int right = 0;
    for (int i = 0; i < N; i++) right += ((float *)pinned)[i] == 4 * 2 * x[i] + 1;
    printf("%d results are right, time passed: %d\n", right, ms > 0);

    struct pointer attributes;
    MUST(cudaPointerGetAttributes(&attributes, on_x));
    printf("device memory: type %d of device %d\n", attributes.type, attributes.device);
    MUST(cudaPointerGetAttributes(&attributes, pinned));
    printf("pinned memory: type %d\n", attributes.type);
    MUST(cudaPointerGetAttributes(&attributes, x));
    printf("other memory: type %d\n", attributes.type);
    struct attributes function;
    int blocks;
    MUST(cudaFuncGetAttributes(&function, (const void *)saxpy));
    MUST(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void *)saxpy, 256, 0));
    printf("saxpy: blocks of %d threads, %d on an SM\n", function.numbers[0], blocks);
    MUST(cudaGraphExecDestroy(exec));
    MUST(cudaGraphDestroy(graph));
    MUST(cudaEventDestroy(before));
    MUST(cudaEventDestroy(after));
    MUST(cudaStreamDestroy(stream));
    MUST(cudaFree(on_x));
    MUST(cudaFree(on_y));
    MUST(cudaFreeHost(pinned));
}

static void errors(void) {
    void *memory;
    dim3 one = {1, 1, 1}, none = {0, 1, 1}, large = {2048, 1, 1};
    SAY(cudaMalloc(&memory, (size_t)1 << 50));
    SAY(cudaPeekAtLastError());
    int elsewhere;
    pthread_t thread;
    pthread_create(&thread, NULL, error_of_another_thread, &elsewhere);
    pthread_join(thread, NULL);
    printf("in another thread: %s\n", cudaGetErrorName(elsewhere));
    SAY(cudaGetLastError());
    SAY(cudaGetLastError());
    SAY(cudaLaunchKernel((const void *)unregistered, one, one, NULL, 0, NULL));
    void *arguments[4] = {&memory, &memory, &memory, &memory};
    SAY(cudaLaunchKernel((const void *)saxpy, none, one, arguments, 0, NULL));
    SAY(cudaLaunchKernel((const void *)saxpy, one, large, arguments, 0, NULL));
    SAY(cudaMemcpy(arguments, arguments, 1, 9));
    SAY(cudaSetDevice(7));
    SAY(cudaMalloc(NULL, 16));
    SAY(cudaGraphAddNode());
    SAY(cudaFree((void *)0x123));
    SAY(cudaFree(NULL));
    SAY(12345);
    printf("%s\n", cudaGetErrorString(35));
}

int main(void) {
    int count = 0, device = -1, found = -1;
    MUST(cudaGetDeviceCount(&count));
    MUST(cudaSetDevice(0));
    MUST(cudaGetDevice(&device));
    printf("device %d of %d\n", device, count);
    compute();
    errors();
    void *entry = NULL;
    SAY(cudaGetDriverEntryPointByVersion("cuMemCreate", &entry, 12000, 0, &found));
    printf("cuMemCreate: %d, answer %d\n", entry != NULL, found);
    SAY(cudaGetDriverEntryPointByVersion("cuNoSuch", &entry, 12000, 0, &found));
    MUST(cudaDeviceSynchronize());
    printf("launches=%d copied_h2d_bytes=%d copied_d2h_bytes=%d\n", launches, h2d, d2h);
    return 0;
}
