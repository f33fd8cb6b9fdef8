/* real_driver doors NAMES VERSIONS: prints the symbol and library to which dlsym and
 * cuGetProcAddress resolve each name in the file NAMES.
 *
 * real_driver calls LIBRARY INITIALISER NAMES: prints how each function of the library answers
 * before and after its initialiser.
 *
 * For NVIDIA's own libraries on a machine without a device. Each function is called in a child
 * process of its own, with all arguments equal, so that an error or a signal is the only result. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAMES_MAX 2048
#define UNTOUCHED ((void *)0x5a5a)
#define NO_STATUS (-77)

static char *names[NAMES_MAX];
static int name_count, versions[256], version_count;

static void read_names(const char *file) {
    char line[256];
    FILE *opened = fopen(file, "r");
    while (opened != NULL && name_count < NAMES_MAX && fgets(line, sizeof line, opened) != NULL) {
        line[strcspn(line, "\n")] = 0;
        names[name_count++] = strdup(line);
    }
    if (name_count == 0) exit(93);
}

static void read_versions(const char *file) {
    FILE *opened = fopen(file, "r");
    while (opened != NULL && version_count < 256 && fscanf(opened, "%d", &versions[version_count]) == 1) version_count++;
    if (version_count == 0) exit(93);
}

/* The symbol at an address and its library. Each address is looked up once, because dladdr reads
 * whole tables. */
static const char *place_of(void *address) {
    static struct { void *address; char *text; } known[4 * NAMES_MAX];
    Dl_info info;
    char text[256];
    if (address == NULL) return "null";
    if (address == UNTOUCHED) return "untouched";
    size_t at = (uintptr_t)address / 16 % (4 * NAMES_MAX);
    while (known[at].address != NULL && known[at].address != address) at = (at + 1) % (4 * NAMES_MAX);
    if (known[at].address == NULL) {
        if (dladdr(address, &info) == 0 || info.dli_sname == NULL) return "nowhere";
        char *file = realpath(info.dli_fname, NULL), *base = file == NULL ? NULL : strrchr(file, '/');
        snprintf(text, sizeof text, "%s+%td@%s", info.dli_sname, (char *)address - (char *)info.dli_saddr,
                 base == NULL ? "?" : base + 1);
        free(file);
        known[at].address = address;
        known[at].text = strdup(text);
    }
    return known[at].text;
}

typedef unsigned (*first_resolver)(const char *, void **, int, uint64_t);
typedef unsigned (*second_resolver)(const char *, void **, int, uint64_t, int *);

/* Prints one line for each flag: the answers of all versions, each only where it changes. */
static void print_answers(void *resolver, int is_second, const char *name) {
    for (unsigned flags = 0; flags < 6; flags++) {
        char last[320] = "", text[320];
        printf("%s %u %s:", is_second ? "second" : "first", flags, name);
        for (int at = 0; at < version_count; at++) {
            void *address = UNTOUCHED;
            int status = NO_STATUS;
            unsigned result = is_second
                ? ((second_resolver)resolver)(name, &address, versions[at], flags, &status)
                : ((first_resolver)resolver)(name, &address, versions[at], flags);
            snprintf(text, sizeof text, "%u/%d/%s", result, status, place_of(address));
            if (strcmp(text, last) != 0) printf(" %d=%s", versions[at], text);
            strcpy(last, text);
        }
        printf("\n");
    }
}

static void print_resolver(void *library, const char *symbol, int is_second) {
    void *resolver = dlsym(library, symbol);
    if (resolver == NULL) {
        printf("no %s\n", symbol);
        return;
    }
    for (int at = 0; at < name_count; at++) print_answers(resolver, is_second, names[at]);
}

static int doors(void) {
    struct { const char *text; int flags; } ways[] = {
        {"lazy", RTLD_LAZY}, {"deep", RTLD_NOW | RTLD_DEEPBIND}, {"global", RTLD_NOW | RTLD_GLOBAL}};
    void *library = NULL;
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        library = dlopen("libcuda.so.1", ways[way].flags);
        if (library == NULL) {
            printf("%s\n", dlerror());
            return 91;
        }
        for (int at = 0; at < name_count; at++) printf("%s %s: %s\n", ways[way].text, names[at], place_of(dlsym(library, names[at])));
    }
    for (int at = 0; at < name_count; at++) {
        printf("default %s: %s\n", names[at], place_of(dlsym(RTLD_DEFAULT, names[at])));
        printf("next %s: %s\n", names[at], place_of(dlsym(RTLD_NEXT, names[at])));
        printf("version %s: %s\n", names[at], place_of(dlvsym(library, names[at], "libcuda.so.1")));
    }
    unsigned (*init)(unsigned) = dlsym(library, "cuInit");
    for (int is_after = 0; is_after < 2; is_after++) {
        if (is_after) printf("cuInit %u\n", init(0));
        print_resolver(library, "cuGetProcAddress", 0);
        print_resolver(library, "cuGetProcAddress_v2", 1);
    }
    return 4;
}

typedef unsigned (*any_function)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
                                 uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

#define PAGE_BYTES 65536

/* Prints the result of a call with all arguments `value`, or the signal that it ended with. */
static void print_call(const char *when, const char *name, const char *what, uintptr_t value, any_function function) {
    static volatile unsigned *told;
    int status = 0;
    if (told == NULL) told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(10);
        *told = function(value, value, value, value, value, value, value, value, value, value, value, value, value, value);
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) printf("%s %s %s: signal %d\n", when, name, what, WTERMSIG(status));
    else printf("%s %s %s: %u, exit %d\n", when, name, what, *told, WEXITSTATUS(status));
}

static int calls(const char *file, const char *initialiser) {
    void *library = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
        printf("%s\n", dlerror());
        return 91;
    }
    /* At the same address in every run, because a function may use half of an address. */
    char *filled = mmap((void *)0x100000000000, 3 * PAGE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    char *zeroes = filled + PAGE_BYTES, *nothing = zeroes + PAGE_BYTES;
    if (filled == MAP_FAILED) return 94;
    memset(filled, 0xaa, PAGE_BYTES);
    mprotect(nothing, PAGE_BYTES, PROT_NONE);
    struct { const char *text; uintptr_t value; } arguments[] = {
        {"null", 0}, {"low", 8}, {"nothing", (uintptr_t)nothing}, {"filled", (uintptr_t)filled}, {"zeroes", (uintptr_t)zeroes}};
    for (int is_after = 0; is_after < 2; is_after++) {
        unsigned (*init)(unsigned) = dlsym(library, initialiser);
        if (is_after) printf("%s %u\n", initialiser, init(0));
        for (int at = 0; at < name_count; at++) {
            any_function function = (any_function)dlsym(library, names[at]);
            for (size_t set = 0; function != NULL && set < sizeof arguments / sizeof *arguments; set++) {
                print_call(is_after ? "after" : "before", names[at], arguments[set].text, arguments[set].value, function);
            }
        }
    }
    return 4;
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "doors") == 0) {
        read_names(argv[2]);
        read_versions(argv[3]);
        return doors();
    }
    if (argc == 5 && strcmp(argv[1], "calls") == 0) {
        read_names(argv[4]);
        return calls(argv[2], argv[3]);
    }
    return 2;
}
