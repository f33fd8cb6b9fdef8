/* graph_steady: launches a graph of ten kernels in rounds, each synchronised and printed, until
 * standard input ends. */
#include "graph_min.h"

int main(void) {
    struct work work;
    CUstream stream;
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    CHECK(cu.StreamCreate(&stream, 0));
    CUgraphExec exec = captured_graph(&work, stream, 10);
    do {
        launch_graph(&work, exec, 10, stream);
        CHECK(cu.StreamSynchronize(stream));
        say("round");
    } while (!is_told_to_end());
    work_check(&work);
    say_asked_graphs();
    return 0;
}
