/* graph_hang BLOCK_NS KERNELS STEPS: launches one graph of kernels that run for BLOCK_NS and never
 * synchronises. STEPS happen before the launch, each a letter: u updates the executable from a
 * graph with one kernel less and back, d leaves one kernel out, c puts the kernels into a child
 * graph. */
#include "graph_min.h"

static CUgraph chain(CUfunction hang, int kernels, CUgraphNode *last) {
    CUgraph graph;
    KernelParams params = {.func = hang, .grid = {1, 1, 1}, .block = {256, 1, 1}};
    CHECK(cuGraphCreate(&graph, 0));
    for (int i = 0; i < kernels; i++) CHECK(cuGraphAddKernelNode_v2(last, graph, last, i > 0, &params));
    return graph;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    char image[256];
    struct work work;
    CUfunction hang;
    CUgraphNode last, parent;
    CUgraphExec exec;
    snprintf(image, sizeof image,
             "softgpu-module 1\nkernel hang block_ns=%s regs=32 shared=0 compute=0.01 bandwidth=0.01\n", argv[1]);
    open_door("linked");
    work_open(&work, image);
    CHECK(cu.ModuleGetFunction(&hang, work.module, "hang"));
    CUgraph graph = chain(hang, atoi(argv[2]), &last);
    if (strchr(argv[3], 'c') != NULL) {
        CUgraph outer;
        CHECK(cuGraphCreate(&outer, 0));
        CHECK(cuGraphAddChildGraphNode(&parent, outer, NULL, 0, graph));
        graph = outer;
    }
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    if (strchr(argv[3], 'u') != NULL) {
        UpdateInfo info;
        CUgraph same;
        CHECK(cuGraphClone(&same, graph));
        CHECK(cuGraphExecUpdate_v2(exec, same, &info));
    }
    if (strchr(argv[3], 'd') != NULL) CHECK(cuGraphNodeSetEnabled(exec, last, 0));
    CHECK(cuGraphLaunch(exec, NULL));
    say("launched");
    wait_until_told_to_end();
    _exit(0);
}
