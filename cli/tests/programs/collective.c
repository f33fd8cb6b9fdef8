/* collective KERNEL STEPS: launches in rounds, each synchronised and printed, until standard input
 * ends; then checks the result. A round has the STEPS: `c` a launch of KERNEL, which has the name
 * of a collective kernel, `p` of saxpy, `g` of a graph of both. At the end the program prints its
 * own counts. */
#include "graph_min.h"

#define KERNELS_OF_GRAPH 2

static atomic_ulong collectives;

static CUgraphExec graph_of_both(struct work *work, CUfunction collective, CUstream stream) {
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuStreamBeginCapture_v2(stream, GLOBAL));
    CHECK(cu.LaunchKernel(collective, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
    atomic_fetch_add(&asked_graphs.captured, 1);
    record_launch(work, stream);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuGraphDestroy(graph));
    return exec;
}

static void take_step(struct work *work, CUfunction collective, CUgraphExec exec, CUstream stream, char step) {
    switch (step) {
    case 'c':
        launch(collective, 1, stream, NULL);
        atomic_fetch_add(&collectives, 1);
        return;
    case 'p':
        work_launch(work, stream);
        return;
    case 'g':
        CHECK(cuGraphLaunch(exec, stream));
        atomic_fetch_add(&asked_graphs.graph_launches, 1);
        atomic_fetch_add(&asked_graphs.graph_kernels, KERNELS_OF_GRAPH);
        atomic_fetch_add(&work->raised, 1);
        atomic_fetch_add(&collectives, 1);
        return;
    }
    exit(2);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    char image[512];
    struct work work;
    CUfunction collective;
    CUstream stream;
    snprintf(image, sizeof image,
             "softgpu-module 1\nkernel %s block_ns=1000 regs=32 shared=0 compute=0.01 bandwidth=0.01\n", argv[1]);
    open_door("linked");
    work_open(&work, image);
    CHECK(cu.ModuleGetFunction(&collective, work.module, argv[1]));
    CHECK(cu.StreamCreate(&stream, 0));
    CUgraphExec exec = graph_of_both(&work, collective, stream);
    do {
        for (const char *step = argv[2]; *step; step++) take_step(&work, collective, exec, stream, *step);
        CHECK(cu.StreamSynchronize(stream));
        say("round");
    } while (!is_told_to_end());
    work_check(&work);
    printf("launches_collective=%lu ", atomic_load(&collectives));
    say_asked_graphs();
    return 0;
}
