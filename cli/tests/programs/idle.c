/* idle: uses CUDA once, then does nothing until standard input ends. */
#include "cuda_min.h"

int main(void) {
    struct work work;
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    work_launch(&work, NULL);
    work_check(&work);
    say("ready");
    wait_until_told_to_end();
    say_asked();
    return 0;
}
