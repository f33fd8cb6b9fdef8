/* lost WAY: uses CUDA, prints "attached", and after a line on standard input does WAY, prints
 * "done" and launches in rounds until standard input ends. The driver is in its null mode: it has
 * no descriptors.
 *
 *   closes  closes all descriptors but the first three, and opens other files under their numbers
 *   forks   makes a child that inherits all of them, and lives as long as this process
 *   sleeps  nothing, and launches nothing more until standard input ends */
#include "cuda_min.h"

#define DESCRIPTORS 64

static void close_all(void) {
    for (int fd = 3; fd < DESCRIPTORS; fd++) close(fd);
    for (int fd = 3; fd < DESCRIPTORS; fd++)
        if (dup(2) < 0) exit(2);
}

static void fork_child(void) {
    int ends[2];
    char byte;
    if (pipe(ends) != 0) exit(2);
    if (fork() != 0) return;
    for (int fd = 0; fd < 3; fd++) close(fd);
    close(ends[1]);
    while (read(ends[0], &byte, 1) > 0) {}
    _exit(0);
}

int main(int argc, char **argv) {
    struct work work;
    char byte;
    if (argc != 2) return 2;
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    work_launch(&work, NULL);
    CHECK(cu.CtxSynchronize());
    say("attached");
    while (read(0, &byte, 1) > 0 && byte != '\n') {}
    if (!strcmp(argv[1], "closes")) close_all();
    if (!strcmp(argv[1], "forks")) fork_child();
    say("done");
    if (!strcmp(argv[1], "sleeps")) wait_until_told_to_end();
    else
        while (!is_told_to_end_within(1)) {
            work_launch(&work, NULL);
            CHECK(cu.CtxSynchronize());
            say("round");
        }
    say_asked();
    return 0;
}
