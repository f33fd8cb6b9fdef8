/* script FILE: makes the calls that FILE lists, one per line, and prints the result of each and the
 * buffers that it wrote.
 *
 *   cuMemAlloc_v2 oCUdeviceptr i4096   a call, found by dlsym
 *   @ cuCtxSynchronize                 the same from a new thread, which has no context
 *   ? cuFoo                            whether dlsym finds it
 *   ! cuFoo 12000 2                    the answer of cuGetProcAddress_v2
 *
 * Arguments are words of 64 bits: every parameter of the driver's functions is passed like one,
 * except structures of 64 bytes, which are on the stack, where there are zeros.
 *
 *   n        NULL, 0
 *   iNUMBER  a number
 *   x        a handle that was never returned
 *   hTYPE:K  the Kth handle of that type, 0 if there are none
 *   b        a buffer of zeros
 *   oTYPE    a buffer that receives a handle of that type
 *   aTYPE:K  a buffer with that handle
 *   sTEXT    a text
 *   M        a module image
 *   P, Q     parameters of saxpy that are right, and with bad addresses
 *   C, D     a launch configuration, without and with a priority
 *   F        a callback function
 *
 * Values that may differ from run to run are replaced: handles and addresses are printed as numbers
 * in the order of their appearance, and times are not printed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLAIN_IMAGE "softgpu-module 1\n"

#define ARGUMENTS_MAX 16
#define BUFFER_BYTES (1 << 20)
#define SHOWN_BYTES 256
#define HANDLES_MAX 512
#define INVALID 0xdead0000u

typedef unsigned (*function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                             uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                             uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static struct { char type[40]; uint64_t value; } handles[HANDLES_MAX];
static unsigned handle_count;
static void *library;
static int is_capturing;

struct launch_config {
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    void *attributes;
    unsigned attribute_count;
};

static uint64_t handle_of(const char *type, unsigned wanted) {
    unsigned count = 0;
    for (unsigned i = 0; i < handle_count; i++) count += strcmp(handles[i].type, type) == 0;
    if (count == 0) return 0;
    wanted %= count;
    for (unsigned i = 0; i < handle_count; i++)
        if (strcmp(handles[i].type, type) == 0 && wanted-- == 0) return handles[i].value;
    return 0;
}

/* Returns the number of a handle, or -1. If several had this value, the last one counts. */
static int known(uint64_t value) {
    for (unsigned i = handle_count; i-- > 0;)
        if (handles[i].value == value && value != 0) return (int)i;
    return -1;
}

static void called_back(void) {}

static uint64_t parameters(int is_right) {
    static float a = 1;
    static unsigned n = 256;
    static uint64_t x, y, bad = INVALID;
    static void *right[] = {&a, &x, &y, &n}, *wrong[] = {&a, &bad, &bad, &n};
    x = handle_of("CUdeviceptr", 0);
    y = handle_of("CUdeviceptr", 1);
    return (uint64_t)(uintptr_t)(is_right ? right : wrong);
}

static uint64_t configuration(int has_priority) {
    static uint64_t attribute[9];
    static struct launch_config config = {{1, 1, 1}, {256, 1, 1}, 0, NULL, NULL, 0};
    attribute[0] = 8; /* CU_LAUNCH_ATTRIBUTE_PRIORITY */
    config.attributes = has_priority ? attribute : NULL;
    config.attribute_count = has_priority ? 1 : 0;
    return (uint64_t)(uintptr_t)&config;
}

/* Converts one argument; `buffer` receives the address of a buffer. */
static uint64_t argument(const char *word, unsigned char **buffer) {
    char type[40];
    unsigned k;
    switch (word[0]) {
    case 'i': return (uint64_t)strtoll(word + 1, NULL, 10);
    case 'x': return INVALID;
    case 's': return (uint64_t)(uintptr_t)strdup(word + 1);
    case 'M': return (uint64_t)(uintptr_t)PLAIN_IMAGE;
    case 'P': return parameters(1);
    case 'Q': return parameters(0);
    case 'C': return configuration(0);
    case 'D': return configuration(1);
    case 'F': return (uint64_t)(uintptr_t)called_back;
    case 'h': return sscanf(word + 1, "%39[^:]:%u", type, &k) == 2 ? handle_of(type, k) : 0;
    case 'a': case 'b': case 'o':
        /* Never freed: the driver may keep the address. Untouched pages cost nothing. */
        *buffer = calloc(1, BUFFER_BYTES);
        if (*buffer == NULL) exit(3);
        if (word[0] == 'a' && sscanf(word + 1, "%39[^:]:%u", type, &k) == 2) {
            uint64_t value = handle_of(type, k);
            memcpy(*buffer, &value, sizeof value);
        }
        return (uint64_t)(uintptr_t)*buffer;
    default: return 0;
    }
}

/* Prints the contents of a buffer after a call, up to the last word that is not zero. */
static void show(const char *symbol, const unsigned char *buffer) {
    uint64_t words[SHOWN_BYTES / 8];
    memcpy(words, buffer, sizeof words);
    int end = SHOWN_BYTES / 8;
    while (end > 0 && words[end - 1] == 0) end--;
    printf(" [");
    for (int i = 0; i < end; i++) {
        if (strstr(symbol, "ElapsedTime") != NULL) printf(" time");
        else if (strstr(symbol, "GetProcAddress") != NULL || strstr(symbol, "StreamGetId") != NULL) printf(" some");
        else if (known(words[i]) >= 0) printf(" #%d", known(words[i]));
        else printf(" %lx", words[i]);
    }
    printf(" ]");
}

static void take_handle(const char *type, const unsigned char *buffer) {
    uint64_t value;
    memcpy(&value, buffer, sizeof value);
    int is_known = known(value) >= 0 && strcmp(handles[known(value)].type, type) == 0;
    if (value == 0 || is_known || handle_count == HANDLES_MAX) return;
    snprintf(handles[handle_count].type, sizeof handles->type, "%s", type);
    handles[handle_count++].value = value;
}

/* Hides the difference between complete and incomplete work, which depends on the machine's
 * speed. */
static unsigned settled(const char *symbol, unsigned code) {
    int asks = strstr(symbol, "Query") != NULL || strstr(symbol, "ElapsedTime") != NULL;
    return asks && code == 600 ? 0 : code;
}

/* Waits in all contexts, so that a kernel's fault is reported now and not at an arbitrary later
 * call. */
static void synchronize(void) {
    unsigned (*get)(void **) = dlsym(library, "cuCtxGetCurrent");
    unsigned (*set)(void *) = dlsym(library, "cuCtxSetCurrent");
    unsigned (*synchronize)(void) = dlsym(library, "cuCtxSynchronize");
    void *current = NULL;
    get(&current);
    printf(", then %u", synchronize());
    for (unsigned i = 0; i < handle_count; i++) {
        if (strcmp(handles[i].type, "CUcontext") != 0) continue;
        if (set((void *)(uintptr_t)handles[i].value) == 0) synchronize();
    }
    set(current);
}

/* The same during a capture, which a context's synchronisation would invalidate: waits for streams
 * that are not in capture. */
static void synchronize_beside_capture(void) {
    unsigned (*exchange)(int *) = dlsym(library, "cuThreadExchangeStreamCaptureMode");
    unsigned (*is)(void *, int *) = dlsym(library, "cuStreamIsCapturing");
    unsigned (*synchronize)(void *) = dlsym(library, "cuStreamSynchronize");
    int mode = 2; /* relaxed */
    exchange(&mode);
    for (unsigned i = 0; i < handle_count + 2; i++) {
        /* The last two are the legacy stream and this thread's default stream. */
        uint64_t stream = i < handle_count ? handles[i].value : i - handle_count + 1;
        int status = -1;
        if (i < handle_count && strcmp(handles[i].type, "CUstream") != 0) continue;
        if (is((void *)(uintptr_t)stream, &status) == 0 && status == 0) synchronize((void *)(uintptr_t)stream);
    }
    exchange(&mode);
}

static void call(char *line) {
    char *words[ARGUMENTS_MAX + 1], *rest = NULL;
    unsigned char *buffers[ARGUMENTS_MAX] = {0};
    uint64_t a[ARGUMENTS_MAX] = {0};
    int count = 0;
    for (char *word = strtok_r(line, " ", &rest); word != NULL && count <= ARGUMENTS_MAX; word = strtok_r(NULL, " ", &rest))
        words[count++] = word;
    if (count == 0) return;
    const char *symbol = words[0];
    function f = (function)dlsym(library, symbol);
    if (f == NULL) {
        printf("%s is not there\n", symbol);
        return;
    }
    for (int i = 1; i < count; i++) a[i - 1] = argument(words[i], &buffers[i - 1]);
    unsigned code = f(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14],
                      a[15], 0, 0, 0, 0, 0, 0, 0, 0);
    printf("%s -> %u", symbol, settled(symbol, code));
    for (int i = 1; i < count; i++) {
        if (buffers[i - 1] == NULL) continue;
        if (words[i][0] == 'o' && code == 0) take_handle(words[i] + 1, buffers[i - 1]);
        show(symbol, buffers[i - 1]);
    }
    if (strncmp(symbol, "cuStreamBeginCapture", 20) == 0 && code == 0) is_capturing = 1;
    if (strncmp(symbol, "cuStreamEndCapture", 18) == 0) is_capturing = 0;
    int is_launch = strncmp(symbol, "cuLaunch", 8) == 0 || strncmp(symbol, "cuGraphLaunch", 13) == 0;
    if (is_launch && code == 0 && !is_capturing) synchronize();
    if (is_launch && code == 0 && is_capturing) synchronize_beside_capture();
    printf("\n");
}

static void *call_on_thread(void *line) {
    call(line);
    return NULL;
}

static void ask(char *line) {
    char name[64] = "";
    int version = 0, status = -1;
    unsigned flags = 0;
    void *answer = NULL;
    /* The name may be empty. */
    char *end = strchr(line, ' ');
    if (end == NULL) return;
    snprintf(name, sizeof name, "%.*s", (int)(end - line), line);
    if (sscanf(end, "%d %u", &version, &flags) != 2) return;
    unsigned (*proc)(const char *, void **, int, uint64_t, int *) = dlsym(library, "cuGetProcAddress_v2");
    unsigned code = proc(name, &answer, version, flags, &status);
    printf("ask %s %d %u -> %u, status %d, %s", name, version, flags, code, status, answer ? "there" : "not there");
    answer = NULL;
    code = proc(name, &answer, version, flags, NULL);
    printf("; %u, %s\n", code, answer ? "there" : "not there");
}

int main(int argc, char **argv) {
    char line[512];
    if (argc != 2) return 2;
    FILE *script = fopen(argv[1], "r");
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (script == NULL || library == NULL) return 2;
    while (fgets(line, sizeof line, script) != NULL) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] == '?') {
            printf("%s is %s\n", line + 2, dlsym(library, line + 2) ? "there" : "not there");
        } else if (line[0] == '!') {
            ask(line + 2);
        } else if (line[0] == '@') {
            pthread_t thread;
            if (pthread_create(&thread, NULL, call_on_thread, line + 2) != 0) return 3;
            pthread_join(thread, NULL);
        } else if (line[0] != 0) {
            call(line);
        }
        /* The test compares the output up to a crash. */
        fflush(stdout);
    }
    return 0;
}
