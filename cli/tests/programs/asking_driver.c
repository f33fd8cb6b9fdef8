/* A driver whose cuInit looks up its own entry points, as WSL's and newer drivers do, and calls
 * them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

static int depth;

int cuGetExportTable(const void **table, const void *id) {
    (void)id;
    *table = NULL;
    return 500;
}

int cuDriverGetVersion(int *version) {
    *version = 12080;
    return 0;
}

int cuInit(unsigned flags) {
    int version = 0;
    const void *table = &depth;
    printf("cuInit at depth %d\n", depth);
    if (depth > 0) return 0;
    depth++;
    void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    int (*export_table)(const void **, const void *) = dlsym(self, "cuGetExportTable");
    int (*own_init)(unsigned) = dlsym(self, "cuInit");
    int (*own_version)(int *) = dlsym(RTLD_DEFAULT, "cuDriverGetVersion");
    printf("its export table answers %d\n", export_table(&table, NULL));
    printf("its own cuInit answers %d\n", own_init(flags));
    printf("its version in the program: %s\n", own_version == NULL ? "not there" : "there");
    if (own_version != NULL) printf("answers %d\n", own_version(&version));
    printf("next: %s\n", dlsym(RTLD_NEXT, "cuInit") == NULL ? "nobody" : "somebody");
    depth--;
    dlclose(self);
    return 0;
}
