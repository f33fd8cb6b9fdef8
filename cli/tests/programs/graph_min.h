/* Graphs, captures and host functions of the CUDA driver API, and a graph with a known result. For
 * linked programs. */
#ifndef GRAPH_MIN_H
#define GRAPH_MIN_H

#include "cuda_min.h"

typedef void *CUgraph, *CUgraphNode, *CUgraphExec, *CUevent;

typedef struct {
    CUfunction func;
    unsigned grid[3], block[3], shared;
    void **params, **extra, *kern;
    CUcontext context;
} KernelParams;
typedef struct { uint64_t props[11]; const void *access; size_t accesses, bytes; CUdeviceptr address; } AllocParams;
typedef struct { int result; CUgraphNode error, error_from; } UpdateInfo;

CUresult cuGraphCreate(CUgraph *, unsigned);
CUresult cuGraphDestroy(CUgraph);
CUresult cuGraphClone(CUgraph *, CUgraph);
CUresult cuGraphAddKernelNode_v2(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const KernelParams *);
CUresult cuGraphAddChildGraphNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraph);
CUresult cuGraphAddMemAllocNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, AllocParams *);
CUresult cuGraphAddMemFreeNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUdeviceptr);
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode, const KernelParams *);
CUresult cuGraphNodeFindInClone(CUgraphNode *, CUgraphNode, CUgraph);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
CUresult cuGraphExecUpdate_v2(CUgraphExec, CUgraph, UpdateInfo *);
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec, CUgraphNode, const KernelParams *);
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec, CUgraphNode, CUgraph);
CUresult cuGraphNodeSetEnabled(CUgraphExec, CUgraphNode, unsigned);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphExecDestroy(CUgraphExec);
CUresult cuStreamBeginCapture_v2(CUstream, int);
CUresult cuStreamEndCapture(CUstream, CUgraph *);
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned);
CUresult cuStreamDestroy_v2(CUstream);
CUresult cuEventCreate(CUevent *, unsigned);
CUresult cuEventRecord(CUevent, CUstream);
CUresult cuEventSynchronize(CUevent);
CUresult cuMemAllocAsync(CUdeviceptr *, size_t, CUstream);
CUresult cuMemFreeAsync(CUdeviceptr, CUstream);
CUresult cuLaunchHostFunc(CUstream, void (*)(void *), void *);
CUresult cuStreamAddCallback(CUstream, void (*)(CUstream, CUresult, void *), void *, unsigned);

enum { GLOBAL, THREAD_LOCAL, RELAXED };

/* Requests that `asked` does not count. */
static struct { atomic_ulong graph_launches, graph_kernels, captured, host_calls; } asked_graphs;

/* Records a launch, which does not run. */
static inline void record_launch(struct work *work, CUstream stream) {
    float a = 1;
    unsigned n = ELEMENTS;
    void *parameters[] = {&a, &work->x, &work->y, &n};
    CHECK(cu.LaunchKernel(work->saxpy, ELEMENTS / 256, 1, 1, 256, 1, 1, 0, stream, parameters, NULL));
    atomic_fetch_add(&asked_graphs.captured, 1);
}

/* Launches a graph of that many kernels, each of which adds x to y. */
static inline void launch_graph(struct work *work, CUgraphExec exec, unsigned kernels, CUstream stream) {
    CHECK(cuGraphLaunch(exec, stream));
    atomic_fetch_add(&asked_graphs.graph_launches, 1);
    atomic_fetch_add(&asked_graphs.graph_kernels, kernels);
    atomic_fetch_add(&work->raised, kernels);
}

static inline CUgraphExec captured_graph(struct work *work, CUstream stream, unsigned kernels) {
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuStreamBeginCapture_v2(stream, GLOBAL));
    for (unsigned i = 0; i < kernels; i++) record_launch(work, stream);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuGraphDestroy(graph));
    return exec;
}

static inline void say_asked_graphs(void) {
    printf("graph_launches=%lu graph_kernels=%lu launches_captured=%lu host_calls=%lu ",
           atomic_load(&asked_graphs.graph_launches), atomic_load(&asked_graphs.graph_kernels),
           atomic_load(&asked_graphs.captured), atomic_load(&asked_graphs.host_calls));
    say_asked();
}

#endif
