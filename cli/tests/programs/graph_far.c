/* graph_far: a graph is instantiated and updated while a context on device 1 is current, and
 * launched on a stream of device 0. */
#include "graph_min.h"

#define KERNELS 7

static struct work work;

int main(void) {
    CUstream stream;
    CUcontext other;
    CUgraph graph;
    CUgraphExec exec;
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    CHECK(cu.StreamCreate(&stream, 0));
    CHECK(cuStreamBeginCapture_v2(stream, RELAXED));
    for (unsigned i = 0; i < KERNELS; i++) record_launch(&work, stream);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cu.CtxCreate(&other, 0, 1));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    UpdateInfo info;
    CHECK(cuGraphExecUpdate_v2(exec, graph, &info));
    CHECK(cu.CtxSetCurrent(work.context));
    for (int i = 0; i < 3; i++) launch_graph(&work, exec, KERNELS, stream);
    work_launch(&work, stream);
    CHECK(cu.StreamSynchronize(stream));
    work_check(&work);
    say_asked_graphs();
    return 0;
}
