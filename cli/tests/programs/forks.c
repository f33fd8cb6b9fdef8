/* forks before|after: a child that uses CUDA, whose parent has not used it yet, or has. */
#include "cuda_min.h"

static int wait_for(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
    return WEXITSTATUS(status);
}

static void run(const char *name, int rounds) {
    struct work work;
    work_open(&work, PLAIN_IMAGE);
    for (int i = 0; i < rounds; i++) work_launch(&work, NULL);
    work_check(&work);
    printf("%s: ", name);
    say_asked();
}

static int before(void) {
    pid_t child = fork();
    if (child == 0) {
        run("child", 30);
        exit(4);
    }
    printf("child ended with %d\n", wait_for(child));
    run("parent", 20);
    return 0;
}

/* The driver decides the result in a child of a process that has used CUDA: its own error, and no
 * crash. */
static int after(void) {
    struct work work;
    work_open(&work, PLAIN_IMAGE);
    for (int i = 0; i < 10; i++) work_launch(&work, NULL);
    CHECK(cu.CtxSynchronize());
    for (int i = 0; i < 3; i++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            CUdeviceptr memory;
            unsigned n = ELEMENTS;
            float a = 1;
            void *parameters[] = {&a, &work.x, &work.y, &n};
            printf("in child: alloc %u, sync %u", cu.MemAlloc(&memory, 4096), cu.CtxSynchronize());
            printf(", launch %u, init %u\n",
                   cu.LaunchKernel(work.saxpy, 1, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL), cu.Init(0));
            exit(4);
        }
        for (int j = 0; j < 10; j++) work_launch(&work, NULL);
        printf("child ended with %d\n", wait_for(child));
    }
    /* The child starts another program, as subprocess.run does. */
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/echo", "echo", "another program", (char *)NULL);
        _exit(127);
    }
    printf("child ended with %d\n", wait_for(child));
    work_check(&work);
    say_asked();
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    open_door("linked");
    return strcmp(argv[1], "before") == 0 ? before() : after();
}
