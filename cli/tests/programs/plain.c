/* plain WORDS…: a program without CUDA. Prints its arguments, its standard input, results of dlsym,
 * a thread local of a thread, and the error text of a failed look-up. Exits with 3. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Thread_local int local = 40;

static void *count(void *amount) {
    local += *(int *)amount;
    return (void *)(long)local;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) printf("argument %s\n", argv[i]);
    char line[256];
    while (fgets(line, sizeof line, stdin) != NULL) printf("input %s", line);
#ifndef STATIC
    char *(*get)(const char *) = (char *(*)(const char *))dlsym(RTLD_DEFAULT, "getenv");
    const char *path = get != NULL ? get("PATH") : NULL;
    printf("dlsym %d %d\n", get != NULL, path == getenv("PATH"));
    dlerror();
    void *nothing = dlsym(RTLD_DEFAULT, "no_such_function_anywhere");
    printf("nothing %d %s\n", nothing == NULL, dlerror() != NULL ? "and why" : "without a word");
    void *init = dlsym(RTLD_DEFAULT, "cuInit");
    printf("cuInit %d, driver %d\n", init != NULL, dlopen("libno_such_library.so", RTLD_NOW) != NULL);
#endif
    pthread_t thread;
    void *result = NULL;
    int amount = 2;
    errno = 0;
    if (pthread_create(&thread, NULL, count, &amount) != 0 || pthread_join(thread, &result) != 0) return 4;
    printf("thread %ld main %d errno %d\n", (long)result, local, errno);
    fprintf(stderr, "to standard error\n");
    return 3;
}
