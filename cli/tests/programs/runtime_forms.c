/* Functions that differ between CUDA 12 and 13, called as NVIDIA's header of that release declares
 * them, on the software GPU. Prints the same lines for both, and a last line for each release. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AFTER = 64, PATTERN = 0x5a, NODES_MAX = 8 };

#define MUST(call) must(#call, call)
#define SAY(call) printf("%s: %s\n", #call, cudaGetErrorName(call))
static void must(const char *call, int error) {
    if (!error) return;
    printf("%s: %s\n", call, cudaGetErrorName(error));
    exit(1);
}

static void pointers(void *memory) {
    struct {
        struct cudaPointerAttributes of;
        unsigned char after[AFTER];
    } attributes;
    memset(&attributes, PATTERN, sizeof attributes);
    MUST(cudaPointerGetAttributes(&attributes.of, memory));
    int past = 0;
    for (int at = 0; at < AFTER; at++) past += attributes.after[at] != PATTERN;
    printf("type %d, device %d, the same address: %d, %d bytes written past the end\n", attributes.of.type,
           attributes.of.device, attributes.of.devicePointer == memory, past);
}

/* Returns how many nodes the stream's next node would depend on. */
static size_t captured_after(cudaStream_t stream) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    cudaGraph_t graph = NULL;
    const cudaGraphNode_t *after = NULL;
    size_t count = 99;
#if CUDART_VERSION < 13000
    MUST(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &after, &count));
#else
    MUST(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &after, NULL, &count));
#endif
    if (status != cudaStreamCaptureStatusActive || id == 0 || graph == NULL) printf("not in capture\n");
    return count;
}

static void capture(char *memory) {
    cudaStream_t stream;
    cudaGraph_t graph;
    MUST(cudaStreamCreate(&stream));
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    MUST(cudaMemsetAsync(memory, 1, 64, stream));
    MUST(cudaMemsetAsync(memory, 2, 64, stream));
    printf("after %zu", captured_after(stream));
#if CUDART_VERSION < 13000
    MUST(cudaStreamUpdateCaptureDependencies(stream, NULL, 0, cudaStreamSetCaptureDependencies));
#else
    MUST(cudaStreamUpdateCaptureDependencies(stream, NULL, NULL, 0, cudaStreamSetCaptureDependencies));
#endif
    printf(", then after %zu\n", captured_after(stream));
    MUST(cudaMemsetAsync(memory + 64, 3, 64, stream));
    MUST(cudaStreamEndCapture(stream, &graph));

    cudaGraphNode_t nodes[NODES_MAX], before[NODES_MAX];
    size_t count = NODES_MAX;
    int firsts = 0, seconds = 0;
    MUST(cudaGraphGetNodes(graph, nodes, &count));
    for (size_t at = 0; at < count; at++) {
        size_t of_node = NODES_MAX;
#if CUDART_VERSION < 13000
        MUST(cudaGraphNodeGetDependencies(nodes[at], before, &of_node));
#else
        MUST(cudaGraphNodeGetDependencies(nodes[at], before, NULL, &of_node));
#endif
        firsts += of_node == 0;
        seconds += of_node == 1;
    }
    printf("%zu nodes: %d first, %d after one\n", count, firsts, seconds);
    struct cudaGraphNodeParams params = {.type = cudaGraphNodeTypeEmpty};
#if CUDART_VERSION < 13000
    int error = cudaGraphAddNode(nodes, graph, NULL, 0, &params);
#else
    int error = cudaGraphAddNode(nodes, graph, NULL, NULL, 0, &params);
#endif
    printf("a node by hand: %s\n", cudaGetErrorName(error));
#if CUDART_VERSION < 13000
    SAY(cudaGraphDebugDotPrint(graph, "graph.dot", 0));
    printf("drawn: %d\n", access("graph.dot", F_OK) == 0);
#endif
    MUST(cudaGraphDestroy(graph));
    MUST(cudaStreamDestroy(stream));
}

#if CUDART_VERSION < 13000
void **__cudaRegisterFatBinary(void *);
void __cudaUnregisterFatBinary(void **);
char __cudaInitModule(void **);

/* The call that compilers insert before the first use of a managed variable, and an entry point of
 * the driver that has no version. */
static void release(void) {
    struct { int magic, version; const void *content; void *file; } wrapper = {0x466243b1, 1, "softgpu-module 1\n", NULL},
        broken = {0x466243b1, 1, "no image\n", NULL};
    void **image = __cudaRegisterFatBinary(&wrapper), **other = __cudaRegisterFatBinary(&broken);
    printf("initialised: %d, a broken one: %d", __cudaInitModule(image) != 0, __cudaInitModule(other) != 0);
    __cudaUnregisterFatBinary(image);
    __cudaUnregisterFatBinary(other);
    void *entry = NULL;
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    MUST(cudaGetDriverEntryPoint("cuMemCreate", &entry, cudaEnableDefault, &found));
    printf(", cuMemCreate: %d, answer %d\n", entry != NULL, found);
}
#else
static void release(void) { printf("nothing of its own\n"); }
#endif

int main(void) {
    char *memory;
    int version = 0;
    MUST(cudaRuntimeGetVersion(&version));
    printf("the header's release: %d\n", version / 1000 == CUDART_VERSION / 1000);
    MUST(cudaMalloc((void **)&memory, 256));
    pointers(memory);
    capture(memory);
    release();
    MUST(cudaFree(memory));
    return 0;
}
