/* host WAY PLUGIN DOOR ROUNDS OWN: works OWN rounds itself, then opens PLUGIN in one way and lets
 * it work.
 *
 *   plain       dlopen
 *   deep        dlopen with RTLD_DEEPBIND
 *   namespace   dlmopen into a new namespace
 *   twice       dlmopen into two new namespaces, one after the other
 *   threads     dlmopen into a new namespace, where a thread looks symbols up while this program
 *               does, too */
#include "cuda_min.h"

static void run(void *plugin, const char *door, unsigned rounds) {
    int (*plugin_run)(const char *, unsigned) = NULL;
    if (plugin == NULL) {
        fprintf(stderr, "host: %s\n", dlerror());
        exit(NOT_CUDA);
    }
    *(void **)&plugin_run = dlsym(plugin, "plugin_run");
    if (plugin_run(door, rounds) != 0) exit(WRONG_RESULT);
}

static void look_up_beside(void *plugin) {
    int (*begin)(void) = NULL, (*end)(void) = NULL;
    *(void **)&begin = dlsym(plugin, "plugin_begin");
    *(void **)&end = dlsym(plugin, "plugin_end");
    if (begin() != 0) exit(WRONG_RESULT);
    for (int look = 0; look < 200000; look++) {
        if (dlsym(RTLD_DEFAULT, "no_such_symbol") != NULL) exit(WRONG_RESULT);
    }
    if (end() != 0) exit(WRONG_RESULT);
}

static void work_here(unsigned rounds) {
    struct work work;
    open_door("dlsym");
    work_open(&work, PLAIN_IMAGE);
    for (unsigned round = 0; round < rounds; round++) work_launch(&work, NULL);
    work_check(&work);
    say_asked();
}

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    const char *way = argv[1], *path = argv[2], *door = argv[3];
    unsigned rounds = (unsigned)atoi(argv[4]), own = (unsigned)atoi(argv[5]);
    if (own > 0) work_here(own);
    if (strcmp(way, "plain") == 0) run(dlopen(path, RTLD_NOW), door, rounds);
    if (strcmp(way, "deep") == 0) run(dlopen(path, RTLD_NOW | RTLD_DEEPBIND), door, rounds);
    if (strcmp(way, "namespace") == 0 || strcmp(way, "twice") == 0) run(dlmopen(LM_ID_NEWLM, path, RTLD_NOW), door, rounds);
    if (strcmp(way, "twice") == 0) run(dlmopen(LM_ID_NEWLM, path, RTLD_NOW), door, rounds);
    if (strcmp(way, "threads") == 0) {
        void *plugin = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
        run(plugin, door, rounds);
        look_up_beside(plugin);
    }
    return 6;
}
