/* resolve REQUESTS first|second: asks cuGetProcAddress for each line "VERSION FLAGS SYMBOL NAME" of
 * the file REQUESTS (the name may be empty), and prints result, status, whether the address is that
 * of SYMBOL, and its library. `first` is the resolver with four parameters (CUDA 11.3), `second`
 * the one with five (CUDA 12.0).
 *
 * The program obtains the resolver from the resolver that it obtained from the resolver: three
 * levels. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned (*first_resolver)(const char *, void **, int, uint64_t);
typedef unsigned (*second_resolver)(const char *, void **, int, uint64_t, int *);

static void *library, *resolver;
static int is_second;

#define UNTOUCHED ((void *)0x5a5a)
#define NO_STATUS (-77)

static unsigned ask(const char *name, void **address, int version, uint64_t flags, int *status) {
    if (is_second) return ((second_resolver)resolver)(name, address, version, flags, status);
    return ((first_resolver)resolver)(name, address, version, flags);
}

/* Prints whether the address is the one that dlsym finds for `symbol`, and its library. A driver
 * may have several symbols for one function, so the name at the address is not printed. */
static void print_address(void *address, const char *symbol) {
    Dl_info info;
    if (address == UNTOUCHED) printf(" untouched\n");
    else if (address == NULL) printf(" null\n");
    else if (dladdr(address, &info) == 0) printf(" nowhere\n");
    else printf(" %s %s\n", address == dlsym(library, symbol) ? "that" : "another", info.dli_fname);
}

static void request(const char *name, const char *symbol, int version, uint64_t flags) {
    void *address = UNTOUCHED, *again = UNTOUCHED;
    int status = NO_STATUS;
    unsigned result = ask(name, &address, version, flags, &status);
    unsigned second = ask(name, &again, version, flags, NULL);
    printf("%u %d %s", result, status, second == result && again == address ? "same" : "different");
    print_address(address, symbol);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    is_second = strcmp(argv[2], "second") == 0;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) return 91;
    resolver = dlsym(library, is_second ? "cuGetProcAddress_v2" : "cuGetProcAddress");
    for (int depth = 1; depth < 3; depth++) {
        void *next = NULL;
        if (ask("cuGetProcAddress", &next, is_second ? 12000 : 11030, 0, NULL) != 0) return 92;
        resolver = next;
    }
    print_address(resolver, is_second ? "cuGetProcAddress_v2" : "cuGetProcAddress");
    FILE *file = fopen(argv[1], "r");
    char line[256], symbol[128];
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        int version = 0, at = 0;
        unsigned long flags = 0;
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%d %lu %127s%n", &version, &flags, symbol, &at) != 3) return 93;
        request(line + at + 1, symbol, version, flags);
    }
    return 4;
}
