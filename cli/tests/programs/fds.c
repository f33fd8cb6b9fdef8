/* fds REPORT DESCRIPTOR…: closes these descriptors, uses CUDA, and writes to the file REPORT the
 * state of each of the first three, and its requests. */
#include "cuda_min.h"
#include <errno.h>
#include <fcntl.h>

int main(int argc, char **argv) {
    struct work work;
    struct stat {
        int is_open;
        char target[128];
    } seen[3] = {0};
    for (int i = 2; i < argc; i++) close(atoi(argv[i]));
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    for (int i = 0; i < 10; i++) work_launch(&work, NULL);
    CHECK(cu.CtxSynchronize());
    for (int fd = 0; fd < 3; fd++) {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        seen[fd].is_open = fcntl(fd, F_GETFD) != -1;
        ssize_t length = readlink(link, seen[fd].target, sizeof seen[fd].target - 1);
        if (length > 0) seen[fd].target[length] = 0;
    }
    FILE *report = fopen(argv[1], "w");
    if (report == NULL) return 2;
    for (int fd = 0; fd < 3; fd++)
        if (seen[fd].is_open)
            fprintf(report, "%d open %.6s\n", fd, seen[fd].target);
        else
            fprintf(report, "%d closed\n", fd);
    fprintf(report, "launches=%lu copied_h2d_bytes=%lu copied_d2h_bytes=%lu\n", atomic_load(&asked.launches),
            atomic_load(&asked.h2d_bytes), atomic_load(&asked.d2h_bytes));
    fclose(report);
    return 0;
}
