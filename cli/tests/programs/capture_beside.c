/* capture_beside CAPTURES: one thread captures again and again, in every mode, while another
 * launches work that runs. Then captures are invalidated, ended by another thread, and left to a
 * stream that is destroyed; work continues after each. */
#include "graph_min.h"

static struct work work;
static atomic_int is_over;

static void *launch_all_the_time(void *unused) {
    CUstream stream;
    (void)unused;
    CHECK(cu.CtxSetCurrent(work.context));
    CHECK(cu.StreamCreate(&stream, 1));
    while (!atomic_load(&is_over)) work_launch(&work, stream);
    CHECK(cu.StreamSynchronize(stream));
    return NULL;
}

static void *end_it(void *stream) {
    CUgraph graph;
    CHECK(cu.CtxSetCurrent(work.context));
    CHECK(cuStreamEndCapture(stream, &graph));
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    CUstream stream, doomed;
    CUgraph graph;
    CUgraphExec exec;
    pthread_t thread;
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    CHECK(cu.StreamCreate(&stream, 1));
    if (pthread_create(&thread, NULL, launch_all_the_time, NULL) != 0) return 3;
    for (int i = atoi(argv[1]); i > 0; i--) {
        CHECK(cuStreamBeginCapture_v2(stream, i % 3));
        for (int j = 0; j < 20; j++) record_launch(&work, stream);
        CHECK(cuStreamEndCapture(stream, &graph));
        CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        launch_graph(&work, exec, 20, stream);
        CHECK(cu.StreamSynchronize(stream));
        CHECK(cuGraphExecDestroy(exec));
        CHECK(cuGraphDestroy(graph));
    }
    atomic_store(&is_over, 1);
    pthread_join(thread, NULL);
    /* Invalidated. */
    CHECK(cuStreamBeginCapture_v2(stream, GLOBAL));
    if (cu.StreamSynchronize(stream) != 900 || cuStreamEndCapture(stream, &graph) != 901) return WRONG_RESULT;
    /* Ended by another thread. */
    CHECK(cuStreamBeginCapture_v2(stream, RELAXED));
    if (pthread_create(&thread, NULL, end_it, stream) != 0) return 3;
    pthread_join(thread, NULL);
    /* Ended with its stream. */
    CHECK(cu.StreamCreate(&doomed, 1));
    CHECK(cuStreamBeginCapture_v2(doomed, THREAD_LOCAL));
    CHECK(cuStreamDestroy_v2(doomed));
    say("captured");
    /* Without a synchronisation only Pillion's own events show that this work is done. */
    for (int i = 0; i < 100; i++) work_launch(&work, stream);
    say("launched");
    wait_until_told_to_end();
    work_check(&work);
    say_asked_graphs();
    return 0;
}
