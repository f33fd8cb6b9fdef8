/* real_nccl FILE: loads NVIDIA's NCCL, as frameworks do, and initialises it without a device. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    char id[128] = {0};
    int version = 0, device = 0;
    void *communicator = NULL, *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) return 91;
    int (*get_version)(int *) = dlsym(library, "ncclGetVersion");
    int (*get_id)(char *) = dlsym(library, "ncclGetUniqueId");
    int (*init_all)(void **, int, const int *) = dlsym(library, "ncclCommInitAll");
    const char *(*last_error)(void *) = dlsym(library, "ncclGetLastError");
    if (get_version == NULL || get_id == NULL || init_all == NULL || last_error == NULL) return 92;
    printf("version %d\n", get_version(&version));
    printf("id %d\n", get_id(id));
    printf("init %d\n", init_all(&communicator, 1, &device));
    printf("%s\n", last_error(NULL));
    return 6;
}
