/* steady [PAUSE_MS]: launches in rounds of ten, each synchronised and printed, until standard input
 * ends; then checks the result. With an argument it pauses for so many milliseconds after each
 * round. */
#include "cuda_min.h"

int main(int argc, char **argv) {
    struct work work;
    int pause_ms = argc > 1 ? atoi(argv[1]) : 0;
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    do {
        for (int i = 0; i < 10; i++) work_launch(&work, NULL);
        CHECK(cu.CtxSynchronize());
        say("round");
    } while (!is_told_to_end_within(pause_ms));
    work_check(&work);
    say_asked();
    return 0;
}
