/* Graphs: their nodes, the results that they compute, and every way to change them. */
#include "graph_min.h"

#define N 1000

static CUfunction fill, add, saxpy;
static CUdeviceptr x, y;
static unsigned n = N;

static void expect(CUdeviceptr at, float value) {
    float back[N];
    DO(cuCtxSynchronize());
    DO(cuMemcpyDtoH_v2(back, at, sizeof back));
    for (int i = 0; i < N; i++)
        if (back[i] != value) {
            fprintf(stderr, "[%d] is %g, not %g\n", i, (double)back[i], (double)value);
            exit(1);
        }
}

static KernelParams fill_node(CUdeviceptr *to, float *value) {
    static void *params[3];
    params[0] = to, params[1] = value, params[2] = &n;
    return add_params(fill, params, n);
}

/* x = a * one + x, by nodes with explicit dependencies only. */
static void order_and_parameters(void) {
    CUgraph graph;
    CUgraphNode first, second, third, some[8], more[8];
    CUgraphExec exec;
    size_t count;
    int type;
    float two = 2, three = 3, a = 10;
    DO(cuGraphCreate(&graph, 0));
    KernelParams params = fill_node(&x, &two);
    DO(cuGraphAddKernelNode_v2(&first, graph, NULL, 0, &params));
    params = fill_node(&y, &three);
    DO(cuGraphAddKernelNode_v2(&second, graph, NULL, 0, &params));
    void *saxpy_params[] = {&a, &x, &y, &n};
    params = add_params(saxpy, saxpy_params, n);
    DO(cuGraphAddKernelNode_v2(&third, graph, &first, 1, &params));
    DO(cuGraphAddDependencies(graph, &second, &third, 1));
    /* The arguments were copied when the node was made. */
    a = 1000;
    WANT(INVALID_VALUE, cuGraphAddDependencies(graph, &second, &third, 1));
    WANT(INVALID_VALUE, cuGraphAddDependencies(graph, &third, &third, 1));
    count = 8;
    DO(cuGraphGetNodes(graph, some, &count));
    SHOW(count == 3 && some[0] == first && some[1] == second && some[2] == third && some[3] == NULL);
    DO(cuGraphGetNodes(graph, NULL, &count));
    SHOW(count == 3);
    count = 1;
    DO(cuGraphGetRootNodes(graph, some, &count));
    SHOW(count == 1 && some[0] == first);
    count = 8;
    DO(cuGraphGetEdges(graph, some, more, &count));
    SHOW(count == 2 && some[0] == first && more[0] == third && some[1] == second && more[1] == third);
    count = 8;
    DO(cuGraphNodeGetDependencies(third, some, &count));
    SHOW(count == 2 && some[0] == first && some[1] == second);
    count = 8;
    DO(cuGraphNodeGetDependentNodes(first, some, &count));
    SHOW(count == 1 && some[0] == third);
    DO(cuGraphNodeGetType(third, &type));
    SHOW(type == KERNEL);
    KernelParams back;
    DO(cuGraphKernelNodeGetParams_v2(third, &back));
    SHOW(back.func == saxpy && back.grid[0] == 4 && back.block[0] == 256 && *(float *)back.params[0] == 10);
    SHOW(*(CUdeviceptr *)back.params[2] == y);

    DO(cuGraphInstantiate_v2(&exec, graph, NULL, NULL, 0));
    DO(cuGraphUpload(exec, NULL));
    DO(cuGraphLaunch(exec, NULL));
    expect(y, 23);
    /* An executable outlives its graph, and can be launched again. */
    DO(cuGraphDestroy(graph));
    WANT(INVALID_VALUE, cuGraphDestroy(graph));
    DO(cuGraphLaunch(exec, NULL));
    expect(y, 23);
    DO(cuGraphExecDestroy(exec));
    WANT(INVALID_VALUE, cuGraphLaunch(exec, NULL));
    WANT(INVALID_VALUE, cuGraphExecDestroy(exec));
}

static int called;
static void call(void *data) { called += *(int *)data; }

/* One node of every kind. */
static void kinds(CUcontext context) {
    CUgraph graph, child;
    CUgraphNode node, last, inside;
    CUgraphExec exec;
    CUevent event;
    float one = 1, host[N], *pinned, back[N];
    int by = 5, type;
    DO(cuEventCreate(&event, 0));
    DO(cuMemHostAlloc((void **)&pinned, sizeof host, 0));
    for (int i = 0; i < N; i++) host[i] = 0;
    DO(cuGraphCreate(&graph, 0));
    DO(cuGraphCreate(&child, 0));
    KernelParams fill_y = fill_node(&y, &one);
    DO(cuGraphAddKernelNode(&inside, child, NULL, 0, &fill_y));
    SetParams zero = {.dst = x, .value = 0, .element_bytes = 4, .width = n, .height = 1};
    DO(cuGraphAddMemsetNode(&last, graph, NULL, 0, &zero, context));
    /* From pageable memory, as it is when the graph runs. */
    CopyParams copy = {.from = {.type = ON_HOST, .host = host}, .to = {.type = ON_DEVICE, .device = x},
                       .width = sizeof host, .height = 1, .depth = 1};
    DO(cuGraphAddMemcpyNode(&node, graph, &last, 1, &copy, context));
    CopyParams copied;
    DO(cuGraphMemcpyNodeGetParams(node, &copied));
    SHOW(copied.from.host == host && copied.width == sizeof host);
    DO(cuGraphAddChildGraphNode(&last, graph, &node, 1, child));
    void *adding[] = {&x, &y, &x, &n};
    KernelParams sum = add_params(add, adding, n);
    DO(cuGraphAddKernelNode_v2(&node, graph, &last, 1, &sum));
    HostParams calling = {call, &by};
    DO(cuGraphAddHostNode(&last, graph, &node, 1, &calling));
    DO(cuGraphAddEmptyNode(&node, graph, &last, 1));
    DO(cuGraphAddEventRecordNode(&last, graph, &node, 1, event));
    DO(cuGraphAddEventWaitNode(&node, graph, &last, 1, event));
    CopyParams out = {.from = {.type = ON_DEVICE, .device = x}, .to = {.type = ON_HOST, .host = pinned},
                      .width = sizeof host, .height = 1, .depth = 1};
    DO(cuGraphAddMemcpyNode(&last, graph, &node, 1, &out, context));
    out.to.host = back;
    DO(cuGraphAddMemcpyNode(&node, graph, &last, 1, &out, context));
    NodeParams conditional = {.type = CONDITIONAL};
    WANT(NOT_SUPPORTED, cuGraphAddNode(&last, graph, NULL, 0, &conditional));
    NodeParams empty = {.type = EMPTY};
    DO(cuGraphAddNode_v2(&last, graph, &node, NULL, 1, &empty));
    DO(cuGraphNodeGetType(last, &type));
    SHOW(type == EMPTY);
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int round = 1; round <= 3; round++) {
        for (int i = 0; i < N; i++) host[i] = round;
        DO(cuGraphLaunch(exec, NULL));
        DO(cuEventSynchronize(event));
        DO(cuCtxSynchronize());
        SHOW(called == by * round);
        for (int i = 0; i < N; i++) SHOW(pinned[i] == round + 1 && back[i] == round + 1);
    }
    CUgraph found;
    DO(cuGraphAddChildGraphNode(&last, graph, NULL, 0, child));
    DO(cuGraphChildGraphNodeGetGraph(last, &found));
    SHOW(found != child);
    WANT(INVALID_VALUE, cuGraphDestroy(found));
    DO(cuGraphDestroy(child));
    DO(cuGraphDestroyNode(last));
    DO(cuGraphDestroy(graph));
    DO(cuGraphExecDestroy(exec));
}

/* Changes an executable in every way. */
static void changes(void) {
    CUgraph graph, other, child;
    CUgraphNode node, alike, found, leaf, parent;
    CUgraphExec exec;
    UpdateInfo info;
    unsigned enabled;
    float one = 1, two = 2, three = 3;
    DO(cuGraphCreate(&graph, 0));
    KernelParams params = fill_node(&x, &one);
    DO(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params));
    InstantiateParams how = {0};
    DO(cuGraphInstantiateWithParams(&exec, graph, &how));
    SHOW(how.result == 0);
    params = fill_node(&x, &two);
    DO(cuGraphExecKernelNodeSetParams_v2(exec, node, &params));
    DO(cuGraphLaunch(exec, NULL));
    expect(x, 2);
    /* The graph keeps its own parameters. */
    KernelParams back;
    DO(cuGraphKernelNodeGetParams_v2(node, &back));
    SHOW(*(float *)back.params[1] == 1);
    DO(cuGraphClone(&other, graph));
    DO(cuGraphNodeFindInClone(&alike, node, other));
    SHOW(alike != node);
    WANT(INVALID_VALUE, cuGraphNodeFindInClone(&found, alike, other));
    params = fill_node(&x, &three);
    DO(cuGraphKernelNodeSetParams_v2(alike, &params));
    DO(cuGraphExecUpdate_v2(exec, other, &info));
    SHOW(info.result == 0);
    DO(cuGraphLaunch(exec, NULL));
    expect(x, 3);
    DO(cuGraphNodeSetEnabled(exec, node, 0));
    DO(cuGraphNodeGetEnabled(exec, node, &enabled));
    SHOW(enabled == 0);
    DO(cuMemsetD32Async(x, 0, n, NULL));
    DO(cuGraphLaunch(exec, NULL));
    expect(x, 0);
    DO(cuGraphNodeSetEnabled(exec, node, 1));
    NodeParams any = {.type = KERNEL};
    any.kernel = fill_node(&x, &one);
    DO(cuGraphExecNodeSetParams(exec, node, &any));
    DO(cuGraphLaunch(exec, NULL));
    expect(x, 1);
    /* A refused change reports its reason. */
    DO(cuGraphAddEmptyNode(&leaf, other, NULL, 0));
    WANT(UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, other, &info));
    SHOW(info.result == 2);
    DO(cuGraphDestroyNode(leaf));
    DO(cuGraphDestroyNode(alike));
    DO(cuGraphAddEmptyNode(&leaf, other, NULL, 0));
    WANT(UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, other, &info));
    SHOW(info.result == 3 && info.error == leaf);
    DO(cuGraphLaunch(exec, NULL));
    expect(x, 1);
    DO(cuGraphExecDestroy(exec));
    /* A child graph. */
    DO(cuGraphCreate(&child, 0));
    DO(cuGraphAddChildGraphNode(&parent, child, NULL, 0, graph));
    DO(cuGraphInstantiate_v2(&exec, child, NULL, NULL, 0));
    params = fill_node(&x, &three);
    DO(cuGraphKernelNodeSetParams_v2(node, &params));
    DO(cuGraphExecChildGraphNodeSetParams(exec, parent, graph));
    WANT(INVALID_VALUE, cuGraphExecChildGraphNodeSetParams(exec, parent, other));
    DO(cuGraphLaunch(exec, NULL));
    expect(x, 3);
    /* Nodes in a cycle cannot run. */
    CUgraphNode a, b;
    CUgraph circle;
    CUgraphExec none;
    DO(cuGraphCreate(&circle, 0));
    DO(cuGraphAddEmptyNode(&a, circle, NULL, 0));
    DO(cuGraphAddEmptyNode(&b, circle, &a, 1));
    DO(cuGraphAddDependencies(circle, &b, &a, 1));
    WANT(INVALID_VALUE, cuGraphInstantiate_v2(&none, circle, NULL, NULL, 0));
    DO(cuGraphRemoveDependencies(circle, &b, &a, 1));
    DO(cuGraphInstantiate_v2(&none, circle, NULL, NULL, 0));
    DO(cuGraphLaunch(none, NULL));
    DO(cuCtxSynchronize());
}

/* Memory that a graph allocates and frees. */
static void memory(void) {
    CUgraph graph, clone;
    CUgraphNode allocate, filled, copied, freed;
    CUgraphExec exec, second;
    float seven = 7;
    uint64_t bytes;
    size_t free_before, free_after, total;
    DO(cuMemGetInfo_v2(&free_before, &total));
    DO(cuGraphCreate(&graph, 0));
    AllocParams params = {.props = {1, 1}, .bytes = N * 4};
    DO(cuGraphAddMemAllocNode(&allocate, graph, NULL, 0, &params));
    SHOW(params.address != 0);
    KernelParams fill_it = fill_node(&params.address, &seven);
    DO(cuGraphAddKernelNode_v2(&filled, graph, &allocate, 1, &fill_it));
    CopyParams out = {.from = {.type = ON_DEVICE, .device = params.address}, .to = {.type = ON_DEVICE, .device = x},
                      .width = N * 4, .height = 1, .depth = 1};
    DO(cuGraphAddMemcpyNode(&copied, graph, &filled, 1, &out, NULL));
    WANT(NOT_SUPPORTED, cuGraphClone(&clone, graph));
    DO(cuGraphInstantiate_v2(&exec, graph, NULL, NULL, 0));
    WANT(INVALID_VALUE, cuGraphInstantiate_v2(&second, graph, NULL, NULL, 0));
    DO(cuDeviceGetGraphMemAttribute(0, 0, &bytes));
    SHOW(bytes == 0);
    DO(cuGraphLaunch(exec, NULL));
    expect(x, 7);
    DO(cuDeviceGetGraphMemAttribute(0, 0, &bytes));
    SHOW(bytes == N * 4);
    /* The memory is still allocated: it must be freed first, by any means. */
    WANT(INVALID_VALUE, cuGraphLaunch(exec, NULL));
    DO(cuMemFreeAsync(params.address, NULL));
    WANT(INVALID_VALUE, cuMemFree_v2(params.address));
    DO(cuGraphLaunch(exec, NULL));
    DO(cuMemFree_v2(params.address));
    DO(cuGraphExecDestroy(exec));
    DO(cuGraphAddMemFreeNode(&freed, graph, &copied, 1, params.address));
    DO(cuGraphInstantiate_v2(&exec, graph, NULL, NULL, 0));
    for (int i = 0; i < 3; i++) DO(cuGraphLaunch(exec, NULL));
    expect(x, 7);
    DO(cuGraphDestroy(graph));
    DO(cuGraphLaunch(exec, NULL));
    DO(cuCtxSynchronize());
    DO(cuGraphExecDestroy(exec));
    DO(cuDeviceGraphMemTrim(0));
    DO(cuDeviceGetGraphMemAttribute(0, 2, &bytes));
    SHOW(bytes == 0);
    DO(cuMemGetInfo_v2(&free_after, &total));
    SHOW(free_before == free_after);
}

int main(void) {
    CUcontext context = start();
    fill = function("fill"), add = function("add"), saxpy = function("saxpy");
    DO(cuMemAlloc_v2(&x, N * 4));
    DO(cuMemAlloc_v2(&y, N * 4));
    CUgraph graph;
    WANT(INVALID_VALUE, cuGraphCreate(NULL, 0));
    WANT(INVALID_VALUE, cuGraphCreate(&graph, 1));
    order_and_parameters();
    kinds(context);
    changes();
    memory();
    return 0;
}
