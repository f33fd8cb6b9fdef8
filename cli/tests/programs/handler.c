/* handler: launches until SIGUSR1 is handled, then checks the result. */
#include "cuda_min.h"

static volatile sig_atomic_t is_handled;

static void handle(int signal) {
    (void)signal;
    static const char said[] = "handled\n";
    if (write(1, said, sizeof said - 1) < 0) _exit(3);
    is_handled = 1;
}

int main(void) {
    struct sigaction action = {.sa_handler = handle};
    struct work work;
    sigaction(SIGUSR1, &action, NULL);
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    say("ready");
    do work_launch(&work, NULL);
    while (!is_handled);
    work_check(&work);
    say_asked();
    return 0;
}
