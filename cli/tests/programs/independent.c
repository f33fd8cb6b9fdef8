/* independent ROW STREAMS: independent kernels in several streams, a long one among them. Queries
 * set the times of submission: each takes the same time on the virtual clock of the software GPU.
 * The program is single-threaded; the device's record has the times of kernels.
 *
 *   non-blocking, blocking   streams of that kind
 *   pytorch, legacy          the same, non-blocking and blocking, beside work in the legacy stream
 *   per-thread               the thread's default stream first, blocking ones after it */
#include "graph_min.h"

CUresult cuStreamQuery(CUstream);

#define LEGACY ((CUstream)1)
#define PER_THREAD ((CUstream)2)
#define STREAMS_MAX 16
/* A query takes a microsecond of the virtual clock. */
#define QUERIES 1500

static CUstream streams[STREAMS_MAX];

static void pass_time(void) {
    for (int i = 0; i < QUERIES; i++) cuStreamQuery(streams[0]);
}

int main(int argc, char **argv) {
    CUcontext context;
    CUmodule module;
    CUfunction medium, brief, endless;
    if (argc != 3) return 2;
    const char *row = argv[1];
    int count = atoi(argv[2]), has_legacy = !strcmp(row, "pytorch") || !strcmp(row, "legacy");
    int is_blocking = strcmp(row, "pytorch") && strcmp(row, "non-blocking");
    open_door("linked");
    CHECK(cu.Init(0));
    CHECK(cu.CtxCreate(&context, 0, 0));
    CHECK(cu.ModuleLoadData(&module, "softgpu-module 1\n"
                                     "kernel brief block_ns=100000 regs=32 shared=0 compute=0.001 bandwidth=0.001\n"
                                     "kernel medium block_ns=1000000 regs=32 shared=0 compute=0.001 bandwidth=0.001\n"
                                     "kernel long block_ns=20000000 regs=32 shared=0 compute=0.001 bandwidth=0.001\n"));
    CHECK(cu.ModuleGetFunction(&brief, module, "brief"));
    CHECK(cu.ModuleGetFunction(&medium, module, "medium"));
    CHECK(cu.ModuleGetFunction(&endless, module, "long"));
    for (int i = 0; i < count; i++) {
        if (i == 0 && !strcmp(row, "per-thread")) streams[0] = PER_THREAD, cuStreamQuery(PER_THREAD);
        else CHECK(cu.StreamCreate(&streams[i], is_blocking ? 0 : 1));
    }
    for (int i = 0; i < 2 && has_legacy; i++) launch(medium, 1, LEGACY, NULL);
    launch(brief, 1, streams[0], NULL);
    launch(endless, 1, streams[0], NULL);
    for (int round = 0; round < 4; round++) {
        pass_time();
        for (int i = 1; i < count; i++) launch(brief, 1, streams[i], NULL);
        if (has_legacy && !is_blocking) launch(brief, 1, LEGACY, NULL);
    }
    CHECK(cu.CtxSynchronize());
    say_asked();
    return 0;
}
