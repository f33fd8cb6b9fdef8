/* steady: launches in rounds of ten, each synchronised and printed, until standard input ends; then checks the result. */
#include "cuda_min.h"

int main(void) {
    struct work work;
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    do {
        for (int i = 0; i < 10; i++) work_launch(&work, NULL);
        CHECK(cu.CtxSynchronize());
        say("round");
    } while (!is_told_to_end());
    work_check(&work);
    say_asked();
    return 0;
}
