/* graph_work: graphs of every form that computes: captured over two streams, with a child graph,
 * cloned, updated, with nodes left out, with memory of its own and host functions; checks results
 * and order. */
#include "graph_min.h"

static atomic_int order;
static int seen[64];
static void number(void *data) { seen[(size_t)data] = atomic_fetch_add(&order, 1); }
static void told(CUstream stream, CUresult status, void *data) { (void)stream, (void)status, number(data); }

static void host_call(CUstream stream, size_t index) {
    CHECK(cuLaunchHostFunc(stream, number, (void *)index));
    atomic_fetch_add(&asked_graphs.host_calls, 1);
}

static KernelParams saxpy_node(struct work *work, float *a) {
    static unsigned n = ELEMENTS;
    static void *parameters[4];
    parameters[0] = a, parameters[1] = &work->x, parameters[2] = &work->y, parameters[3] = &n;
    KernelParams params = {
        .func = work->saxpy, .grid = {ELEMENTS / 256, 1, 1}, .block = {256, 1, 1}, .params = parameters};
    return params;
}

static void fork_and_join(struct work *work, CUstream a, CUstream b) {
    CUevent part, join;
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuEventCreate(&part, 2));
    CHECK(cuEventCreate(&join, 2));
    CHECK(cuStreamBeginCapture_v2(a, GLOBAL));
    record_launch(work, a);
    CHECK(cuEventRecord(part, a));
    CHECK(cuStreamWaitEvent(b, part, 0));
    record_launch(work, b);
    CHECK(cuLaunchHostFunc(b, number, (void *)60));
    CHECK(cuEventRecord(join, b));
    record_launch(work, a);
    CHECK(cuStreamWaitEvent(a, join, 0));
    record_launch(work, a);
    CHECK(cuStreamEndCapture(a, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 5; i++) {
        /* The capture's second stream is an ordinary stream again. */
        launch_graph(work, exec, 4, b);
        work_launch(work, b);
    }
    CHECK(cu.StreamSynchronize(b));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

static void changes(struct work *work, CUstream stream) {
    CUgraph graph, clone, outer;
    CUgraphNode first, second, alike, child;
    CUgraphExec exec;
    UpdateInfo info;
    float one = 1, two = 2;
    KernelParams params = saxpy_node(work, &one);
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddKernelNode_v2(&first, graph, NULL, 0, &params));
    CHECK(cuGraphAddKernelNode_v2(&second, graph, &first, 1, &params));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    launch_graph(work, exec, 2, stream);
    params = saxpy_node(work, &two);
    CHECK(cuGraphExecKernelNodeSetParams_v2(exec, second, &params));
    launch_graph(work, exec, 2, stream);
    atomic_fetch_add(&work->raised, 1);
    CHECK(cuGraphNodeSetEnabled(exec, second, 0));
    launch_graph(work, exec, 1, stream);
    CHECK(cuGraphClone(&clone, graph));
    CHECK(cuGraphNodeFindInClone(&alike, first, clone));
    CHECK(cuGraphKernelNodeSetParams_v2(alike, &params));
    CHECK(cuGraphExecUpdate_v2(exec, clone, &info));
    launch_graph(work, exec, 1, stream);
    atomic_fetch_add(&work->raised, 1);
    CHECK(cuGraphNodeSetEnabled(exec, second, 1));
    launch_graph(work, exec, 2, stream);
    atomic_fetch_add(&work->raised, 1);
    CHECK(cuGraphExecDestroy(exec));

    CHECK(cuGraphCreate(&outer, 0));
    CHECK(cuGraphAddChildGraphNode(&child, outer, NULL, 0, graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, outer, 0));
    launch_graph(work, exec, 2, stream);
    CHECK(cuGraphExecChildGraphNodeSetParams(exec, child, clone));
    launch_graph(work, exec, 2, stream);
    atomic_fetch_add(&work->raised, 1);
    /* A graph that is launched in a capture becomes part of the new graph. */
    CUgraphExec whole;
    CUgraph both;
    CHECK(cuStreamBeginCapture_v2(stream, THREAD_LOCAL));
    CHECK(cuGraphLaunch(exec, stream));
    atomic_fetch_add(&asked_graphs.captured, 1);
    record_launch(work, stream);
    CHECK(cuStreamEndCapture(stream, &both));
    CHECK(cuGraphInstantiateWithFlags(&whole, both, 0));
    launch_graph(work, whole, 3, stream);
    atomic_fetch_add(&work->raised, 1);
    CHECK(cu.StreamSynchronize(stream));
}

static void memory(struct work *work, CUstream stream) {
    CUgraph graph;
    CUgraphNode allocate, raise, free_it;
    CUgraphExec exec;
    CUdeviceptr taken;
    float one = 1;
    AllocParams wanted = {.props = {1, 1}, .bytes = 1 << 20};
    KernelParams params = saxpy_node(work, &one);
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemAllocNode(&allocate, graph, NULL, 0, &wanted));
    CHECK(cuGraphAddKernelNode_v2(&raise, graph, &allocate, 1, &params));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    launch_graph(work, exec, 1, stream);
    /* Memory that a graph has allocated can be freed like any other. */
    CHECK(cuMemFreeAsync(wanted.address, stream));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphAddMemFreeNode(&free_it, graph, &raise, 1, wanted.address));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 3; i++) launch_graph(work, exec, 1, stream);
    CHECK(cu.StreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    /* An invalidated capture with an allocation leaves nothing behind. */
    CHECK(cuStreamBeginCapture_v2(stream, GLOBAL));
    CHECK(cuMemAllocAsync(&taken, 1 << 20, stream));
    if (cu.StreamSynchronize(stream) != 900 || cuStreamEndCapture(stream, &graph) != 901) exit(WRONG_RESULT);
    work_launch(work, stream);
}

int main(void) {
    struct work work;
    CUstream a, b;
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    CHECK(cu.StreamCreate(&a, 1));
    CHECK(cu.StreamCreate(&b, 1));
    fork_and_join(&work, a, b);
    changes(&work, a);
    memory(&work, a);
    atomic_store(&order, 0);
    for (size_t i = 0; i < 20; i++) {
        work_launch(&work, a);
        host_call(a, i);
    }
    CHECK(cuStreamAddCallback(a, told, (void *)20, 0));
    atomic_fetch_add(&asked_graphs.host_calls, 1);
    CHECK(cu.StreamSynchronize(a));
    for (int i = 0; i <= 20; i++)
        if (seen[i] != i) exit(WRONG_RESULT);
    work_check(&work);
    say_asked_graphs();
    return 0;
}
