/* background REPORT: becomes a daemon as usual (two forks, a new session, no standard descriptors,
 * another folder), uses CUDA, and writes its requests to the file REPORT. The first process exits
 * at once with 4. */
#include "cuda_min.h"
#include <fcntl.h>
#include <sys/stat.h>

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    pid_t child = fork();
    if (child != 0) {
        int status;
        waitpid(child, &status, 0);
        return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 4 : 5;
    }
    setsid();
    if (fork() != 0) _exit(0);
    if (chdir("/") != 0) return 2;
    umask(077);
    for (int fd = 0; fd < 64; fd++) close(fd);
    struct work work;
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    for (int i = 0; i < 9; i++) work_launch(&work, NULL);
    work_check(&work);
    char unfinished[256];
    snprintf(unfinished, sizeof unfinished, "%s.part", argv[1]);
    FILE *report = fopen(unfinished, "w");
    if (report == NULL) return 2;
    fprintf(report, "launches=%lu umask=%03o\n", atomic_load(&asked.launches), umask(0));
    fclose(report);
    return rename(unfinished, argv[1]) != 0;
}
