/* Graphs, captures and host functions of the CUDA driver API, declared from its public
 * documentation. */
#pragma once
#include <stddef.h>
#include "cuda_min.h"

typedef struct gra *CUgraph;
typedef struct nod *CUgraphNode;
typedef struct exe *CUgraphExec;
typedef struct obj *CUuserObject;
typedef void (*HostFunction)(void *);

enum { ILLEGAL_STATE = 401, NOT_PERMITTED = 800, UPDATE_FAILURE = 910 };
enum {
    CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED, CAPTURE_MERGE, CAPTURE_UNMATCHED, CAPTURE_UNJOINED,
    CAPTURE_ISOLATION, CAPTURE_IMPLICIT, CAPTURED_EVENT, CAPTURE_WRONG_THREAD
};
enum { GLOBAL, THREAD_LOCAL, RELAXED };
enum { KERNEL, MEMCPY, MEMSET, HOST, GRAPH, EMPTY, WAIT_EVENT, EVENT_RECORD, MEM_ALLOC = 10, MEM_FREE, CONDITIONAL = 13 };
enum { ON_HOST = 1, ON_DEVICE = 2 };

typedef struct {
    CUfunction func; unsigned grid[3], block[3], shared; void **params, **extra; void *kern; CUcontext context;
} KernelParams;
typedef struct {
    size_t x, y, z, lod; int type; const void *host; CUdeviceptr device; void *array, *reserved; size_t pitch, height;
} Side;
typedef struct { Side from, to; size_t width, height, depth; } CopyParams;
typedef struct { CUdeviceptr dst; size_t pitch; unsigned value, element_bytes; size_t width, height; } SetParams;
typedef struct { HostFunction function; void *data; } HostParams;
typedef struct { uint64_t props[11]; const void *access; size_t accesses, bytes; CUdeviceptr address; } AllocParams;
typedef struct {
    int type, reserved[3];
    union { KernelParams kernel; HostParams host; AllocParams alloc; CUdeviceptr free; CUgraph graph; CUevent event; uint64_t words[29]; };
    uint64_t reserved2;
} NodeParams;
typedef struct { uint64_t flags; CUstream stream; CUgraphNode error; int result; } InstantiateParams;
typedef struct { int result; CUgraphNode error, error_from; } UpdateInfo;

CUresult cuGraphCreate(CUgraph *, unsigned);
CUresult cuGraphDestroy(CUgraph);
CUresult cuGraphClone(CUgraph *, CUgraph);
CUresult cuGraphAddKernelNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const KernelParams *);
CUresult cuGraphAddKernelNode_v2(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const KernelParams *);
CUresult cuGraphAddMemcpyNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CopyParams *, CUcontext);
CUresult cuGraphAddMemsetNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const SetParams *, CUcontext);
CUresult cuGraphAddHostNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const HostParams *);
CUresult cuGraphAddChildGraphNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraph);
CUresult cuGraphAddEmptyNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t);
CUresult cuGraphAddEventRecordNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUevent);
CUresult cuGraphAddEventWaitNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUevent);
CUresult cuGraphAddMemAllocNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, AllocParams *);
CUresult cuGraphAddMemFreeNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUdeviceptr);
CUresult cuGraphAddNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, NodeParams *);
CUresult cuGraphAddNode_v2(CUgraphNode *, CUgraph, const CUgraphNode *, const void *, size_t, NodeParams *);
CUresult cuGraphAddDependencies(CUgraph, const CUgraphNode *, const CUgraphNode *, size_t);
CUresult cuGraphRemoveDependencies(CUgraph, const CUgraphNode *, const CUgraphNode *, size_t);
CUresult cuGraphGetNodes(CUgraph, CUgraphNode *, size_t *);
CUresult cuGraphGetRootNodes(CUgraph, CUgraphNode *, size_t *);
CUresult cuGraphGetEdges(CUgraph, CUgraphNode *, CUgraphNode *, size_t *);
CUresult cuGraphNodeGetType(CUgraphNode, int *);
CUresult cuGraphNodeGetDependencies(CUgraphNode, CUgraphNode *, size_t *);
CUresult cuGraphNodeGetDependentNodes(CUgraphNode, CUgraphNode *, size_t *);
CUresult cuGraphNodeFindInClone(CUgraphNode *, CUgraphNode, CUgraph);
CUresult cuGraphDestroyNode(CUgraphNode);
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode, CUgraph *);
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode, KernelParams *);
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode, const KernelParams *);
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode, CopyParams *);
CUresult cuGraphMemsetNodeGetParams(CUgraphNode, SetParams *);
CUresult cuGraphHostNodeGetParams(CUgraphNode, HostParams *);
CUresult cuGraphInstantiate_v2(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
CUresult cuGraphInstantiateWithParams(CUgraphExec *, CUgraph, InstantiateParams *);
CUresult cuGraphExecUpdate_v2(CUgraphExec, CUgraph, UpdateInfo *);
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec, CUgraphNode, const KernelParams *);
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec, CUgraphNode, CUgraph);
CUresult cuGraphExecNodeSetParams(CUgraphExec, CUgraphNode, NodeParams *);
CUresult cuGraphNodeSetEnabled(CUgraphExec, CUgraphNode, unsigned);
CUresult cuGraphNodeGetEnabled(CUgraphExec, CUgraphNode, unsigned *);
CUresult cuGraphUpload(CUgraphExec, CUstream);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphExecDestroy(CUgraphExec);
CUresult cuDeviceGetGraphMemAttribute(CUdevice, int, void *);
CUresult cuDeviceGraphMemTrim(CUdevice);
CUresult cuUserObjectCreate(CUuserObject *, void *, HostFunction, unsigned, unsigned);
CUresult cuUserObjectRelease(CUuserObject, unsigned);
CUresult cuGraphRetainUserObject(CUgraph, CUuserObject, unsigned, unsigned);
CUresult cuStreamBeginCapture_v2(CUstream, int);
CUresult cuStreamBeginCaptureToGraph(CUstream, CUgraph, const CUgraphNode *, const void *, size_t, int);
CUresult cuStreamEndCapture(CUstream, CUgraph *);
CUresult cuStreamIsCapturing(CUstream, int *);
CUresult cuStreamGetCaptureInfo_v2(CUstream, int *, uint64_t *, CUgraph *, const CUgraphNode **, size_t *);
CUresult cuStreamUpdateCaptureDependencies(CUstream, CUgraphNode *, size_t, unsigned);
CUresult cuThreadExchangeStreamCaptureMode(int *);
CUresult cuLaunchHostFunc(CUstream, HostFunction, void *);
CUresult cuStreamAddCallback(CUstream, void (*)(CUstream, CUresult, void *), void *, unsigned);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuEventRecordWithFlags(CUevent, CUstream, unsigned);

/* add: x = x + y, n floats, as a node. */
static inline KernelParams add_params(CUfunction add, void **params, unsigned n) {
    KernelParams node = {.func = add, .grid = {(n + 255) / 256, 1, 1}, .block = {256, 1, 1}, .params = params};
    return node;
}
