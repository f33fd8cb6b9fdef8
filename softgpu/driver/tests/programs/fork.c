/* A child of fork cannot use CUDA, and does not disturb its parent; a child forked before cuInit
 * can use all of it. */
#include "cuda_min.h"
#include <sys/wait.h>
#include <unistd.h>

static void wait_for(pid_t child) {
    int status;
    SHOW(waitpid(child, &status, 0) == child);
    SHOW(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
    pid_t child = fork();
    if (child == 0) {
        start();
        run(function("short"), 1, NULL, NULL);
        DO(cuCtxSynchronize());
        return 0;
    }
    wait_for(child);
    start();
    CUdeviceptr memory, other;
    DO(cuMemAlloc_v2(&memory, 4096));
    run(function("long"), 1, NULL, NULL);
    child = fork();
    if (child == 0) {
        int count;
        WANT(NOT_INITIALIZED, cuDeviceGetCount(&count));
        WANT(NOT_INITIALIZED, cuInit(0));
        WANT(NOT_INITIALIZED, cuMemAlloc_v2(&other, 1));
        WANT(NOT_INITIALIZED, cuCtxSynchronize());
        return 0;
    }
    wait_for(child);
    DO(cuCtxSynchronize());
    DO(cuMemFree_v2(memory));
    return 0;
}
