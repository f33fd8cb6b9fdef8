/* Four files from one source:
 *
 *   DEPENDENCY   a library that another needs
 *   WANTING      that other library
 *   OPENER       a library that opens the libraries that it is asked to open
 *   else         openers OPENER WANTING...: opens them in every way, looks symbols up, and prints
 *                the results and whether an error text remained */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#if defined(DEPENDENCY)
int dependency(void) { return 42; }
#elif defined(WANTING)
int dependency(void);
int wanting(void) { return dependency(); }
#elif defined(OPENER)
void *open_from_here(const char *path, int flags) { return dlopen(path, flags); }
void *open_apart_from_here(const char *path, int flags) { return dlmopen(LM_ID_NEWLM, path, flags); }
#else

/* A function of the program with a driver's name, as a test double has. */
unsigned cuDeviceGetCount(int *count) {
    *count = 7;
    return 0;
}

static void say(const char *what, const void *found) {
    const char *error = dlerror();
    printf("%s: %s, %s\n", what, found == NULL ? "nothing" : "found", error == NULL ? "no error" : "an error");
}

static void ask(const char *when) {
    printf("%s\n", when);
    static const char *const names[] = {"cuInit", "cuLaunchKernel", "cuDeviceGetCount", "cuNoSuchFunction",
                                        "qsort"};
    for (int i = 0; i < 5; i++) {
        say(names[i], dlsym(RTLD_DEFAULT, names[i]));
        say(names[i], dlvsym(RTLD_DEFAULT, names[i], "GLIBC_2.2.5"));
    }
}

static void open_all(void *(*open_from)(const char *, int), char **paths) {
    for (; *paths != NULL; paths++) {
        void *found = open_from(*paths, RTLD_NOW | RTLD_DEEPBIND);
        say("deep", found);
        if (found != NULL) dlclose(found);
        found = open_from(*paths, RTLD_NOW);
        say("plain", found);
        if (found != NULL) dlclose(found);
    }
    say("not there", open_from("/no/such/library.so", RTLD_NOW | RTLD_DEEPBIND));
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    void *opener = dlopen(argv[1], RTLD_NOW);
    if (opener == NULL) return 3;
    void *(*open_from)(const char *, int) = dlsym(opener, "open_from_here");
    void *(*open_apart)(const char *, int) = dlsym(opener, "open_apart_from_here");
    ask("without the driver");
    open_all(open_from, argv + 2);
    say("driver", dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL));
    ask("with the driver");
    open_all(open_from, argv + 2);
    say("apart", open_apart(argv[2], RTLD_NOW));
    return 0;
}
#endif
