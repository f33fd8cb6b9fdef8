/* The part of NVTX 3 by which a module of a program finds the tool that receives its ranges, and
 * the calls that the tests use.
 *
 * Written from the public headers (nvtxDetail/nvtxTypes.h, nvtxInit.h), so that no toolkit is
 * needed. The module opens the tool's library by the path in NVTX_INJECTION64_PATH, and passes to
 * its InitializeInjectionNvtx2 a function that returns the module's tables; functions that the tool
 * leaves out do nothing. NVTX_MODULE makes one module; each shared library that includes NVTX is
 * one. */
#ifndef NVTX_MIN_H
#define NVTX_MIN_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <wchar.h>

/* The result of a range without a tool. */
#define NO_PUSH_POP_TRACKING (-2)

typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type; /* 1: bytes, 2: wchar_t, 3: registered */
    const void *message;
} nvtx_event;

static inline nvtx_event nvtx_named(int32_t type, const void *message) {
    nvtx_event event = {.version = 3, .size = sizeof event, .message_type = type, .message = message};
    return event;
}

typedef struct {
    size_t struct_size;
    int (*get_table)(int module, void ****table, unsigned *size);
} nvtx_callbacks;

typedef int (*nvtx_initialize)(const void *(*get_export_table)(uint32_t));

/* Entries of a table; NVTX keeps the last one null. */
#define NVTX_SLOTS 16

#define NVTX_MODULE(M) \
    static void *M##_core[NVTX_SLOTS], *M##_core2[NVTX_SLOTS]; \
    static void **M##_places[2][NVTX_SLOTS + 1]; \
    static int M##_get_table(int module, void ****table, unsigned *size) { \
        if (module != 1 && module != 5) return 0; \
        *table = M##_places[module == 5]; \
        *size = NVTX_SLOTS; \
        return 1; \
    } \
    static const nvtx_callbacks M##_callbacks = {sizeof M##_callbacks, M##_get_table}; \
    static const void *M##_export(uint32_t table) { return table == 1 ? &M##_callbacks : NULL; } \
    /* Returns whether a tool accepted the module. */ \
    static int M##_open(void) { \
        for (int slot = 1; slot < NVTX_SLOTS; slot++) { \
            M##_places[0][slot] = &M##_core[slot]; \
            M##_places[1][slot] = &M##_core2[slot]; \
        } \
        const char *path = getenv("NVTX_INJECTION64_PATH"); \
        void *tool = path != NULL ? dlopen(path, RTLD_LAZY) : NULL; \
        if (tool == NULL) return 0; \
        nvtx_initialize initialize = (nvtx_initialize)dlsym(tool, "InitializeInjectionNvtx2"); \
        if (initialize != NULL && initialize(M##_export)) return 1; \
        dlclose(tool); \
        return 0; \
    } \
    static inline int M##_push_a(const char *name) { \
        return M##_core[9] ? ((int (*)(const char *))M##_core[9])(name) : NO_PUSH_POP_TRACKING; \
    } \
    static inline int M##_push_w(const wchar_t *name) { \
        return M##_core[10] ? ((int (*)(const wchar_t *))M##_core[10])(name) : NO_PUSH_POP_TRACKING; \
    } \
    static inline int M##_push_event(const nvtx_event *event) { \
        return M##_core[8] ? ((int (*)(const nvtx_event *))M##_core[8])(event) : NO_PUSH_POP_TRACKING; \
    } \
    static inline int M##_pop(void) { return M##_core[11] ? ((int (*)(void))M##_core[11])() : NO_PUSH_POP_TRACKING; } \
    static inline uint64_t M##_start_a(const char *name) { \
        return M##_core[5] ? ((uint64_t(*)(const char *))M##_core[5])(name) : 0; \
    } \
    static inline void M##_end(uint64_t range) { \
        if (M##_core[7]) ((void (*)(uint64_t))M##_core[7])(range); \
    } \
    static inline void *M##_create(const char *name) { \
        return M##_core2[12] ? ((void *(*)(const char *))M##_core2[12])(name) : NULL; \
    } \
    static inline void *M##_register(void *domain, const char *name) { \
        return M##_core2[10] ? ((void *(*)(void *, const char *))M##_core2[10])(domain, name) : NULL; \
    } \
    static inline int M##_push_in(void *domain, const nvtx_event *event) { \
        return M##_core2[4] ? ((int (*)(void *, const nvtx_event *))M##_core2[4])(domain, event) : NO_PUSH_POP_TRACKING; \
    } \
    static inline int M##_pop_in(void *domain) { \
        return M##_core2[5] ? ((int (*)(void *))M##_core2[5])(domain) : NO_PUSH_POP_TRACKING; \
    }

#endif
