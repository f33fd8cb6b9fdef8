/* pillion.h: lets a program mark when its requests begin and end.
 *
 * Header only, for C99 and C++11 with GCC or Clang. The program does not link with Pillion: in a
 * process without Pillion's library every call does nothing and takes about a nanosecond.
 *
 *     pillion_request request = pillion_begin(arrived_ns, 0, batch);
 *     ... launch, wait, answer ...
 *     pillion_end(request);
 *
 * Times are ns of CLOCK_MONOTONIC. Functions of type int return 0 on success, or -1 if nothing was
 * done. Only a high-priority process that has a CUDA context has requests; in other processes
 * pillion_begin returns 0.
 */
#ifndef PILLION_H
#define PILLION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PILLION_ABI 1u

/* A request that has begun; 0 is no request. */
typedef uint64_t pillion_request;

/* The library's functions. New ones are added only at the end. */
typedef struct {
    uint32_t size, abi;
    pillion_request (*begin)(uint64_t arrived_ns, uint32_t kind, uint32_t batch);
    int (*end)(pillion_request request);
    int (*cancel)(pillion_request request);
    int (*slo)(uint32_t kind, uint64_t ns, uint32_t per_mille);
    int (*iteration)(void);
    int (*batch_range)(uint32_t kind, uint32_t least, uint32_t most, uint32_t step);
    uint32_t (*batch_wanted)(uint32_t kind, uint32_t current);
    int (*on_batch)(uint32_t kind, void (*function)(void *data, uint32_t batch), void *data);
} pillion_v1;

/* Both are null in a process without the library. The second is dlsym under a name of our own: this
 * needs neither <dlfcn.h> nor -ldl, and a static program links. */
extern const pillion_v1 *pillion_api(uint32_t abi) __attribute__((weak));
extern void *pillion_dlsym_(void *handle, const char *name) __asm__("dlsym") __attribute__((weak));

/* Returns the library's table, or null. The look-up happens once. */
static inline const pillion_v1 *pillion_table(void) {
    static const pillion_v1 *table;
    static int state; /* 0: not looked up, 1: absent, 2: present */
    int known = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
    if (known == 1) return NULL;
    if (known == 0) {
        const pillion_v1 *found = NULL;
        union { void *address; const pillion_v1 *(*function)(uint32_t); } api;
        api.address = NULL;
        if (pillion_api) api.function = pillion_api;
        else if (pillion_dlsym_) api.address = pillion_dlsym_(NULL /* RTLD_DEFAULT */, "pillion_api");
        if (api.address) found = api.function(PILLION_ABI);
        __atomic_store_n(&table, found, __ATOMIC_RELAXED);
        __atomic_store_n(&state, found ? 2 : 1, __ATOMIC_RELEASE);
        return found;
    }
    return __atomic_load_n(&table, __ATOMIC_RELAXED);
}

/* Whether the library has that function. The table of an older library ends before it. */
#define PILLION_HAS_(table, field) \
    ((table) && (table)->size >= offsetof(pillion_v1, field) + sizeof((table)->field))

/* Marks the begin of work on a request. arrived_ns: when the request arrived, or 0 for now; times
 * in the future or more than an hour ago are refused. kind: the kind of request, by the program's
 * own numbering. batch: the size of the batch, or 0 if unknown. */
static inline pillion_request pillion_begin(uint64_t arrived_ns, uint32_t kind, uint32_t batch) {
    const pillion_v1 *table = pillion_table();
    return PILLION_HAS_(table, begin) ? table->begin(arrived_ns, kind, batch) : 0;
}

/* Marks the end of a request, once it is answered. Returns -1 if the request is not open: already
 * ended, of another process, or begun before a fork. */
static inline int pillion_end(pillion_request request) {
    const pillion_v1 *table = pillion_table();
    return PILLION_HAS_(table, end) ? table->end(request) : -1;
}

/* Marks a request as cancelled. */
static inline int pillion_cancel(pillion_request request) {
    const pillion_v1 *table = pillion_table();
    return PILLION_HAS_(table, cancel) ? table->cancel(request) : -1;
}

/* Sets a target: of 1000 requests of that kind, per_mille (500 to 999) take at most ns. */
static inline int pillion_slo(uint32_t kind, uint64_t ns, uint32_t per_mille) {
    const pillion_v1 *table = pillion_table();
    return PILLION_HAS_(table, slo) ? table->slo(kind, ns, per_mille) : -1;
}

/* Counts an iteration, in a process of either class. */
static inline int pillion_iteration(void) {
    const pillion_v1 *table = pillion_table();
    return PILLION_HAS_(table, iteration) ? table->iteration() : -1;
}

/* States that the program can work on requests of that kind in batches of least, least + step,
 * and so on up to most. Limits: 256 batch sizes, numbers up to 65535 (of the kind, too), 4
 * kinds. If the kind has a target in ms, the daemon may then want one of these batches (its
 * section [tuner]); pillion_begin states the batch of each request. Call this once, after the
 * creation of a context. */
static inline int pillion_batch_range(uint32_t kind, uint32_t least, uint32_t most, uint32_t step) {
    const pillion_v1 *table = pillion_table();
    return PILLION_HAS_(table, batch_range) ? table->batch_range(kind, least, most, step) : -1;
}

/* Returns the batch that the daemon wants for that kind, or current if it wants none. Call this
 * before each batch: it takes some loads, no lock and no system call. */
static inline uint32_t pillion_batch_wanted(uint32_t kind, uint32_t current) {
    const pillion_v1 *table = pillion_table();
    return PILLION_HAS_(table, batch_wanted) ? table->batch_wanted(kind, current) : current;
}

/* Sets the function that a thread of the library calls, with that data, when the daemon wants
 * another batch for that kind. The function must return soon, and must neither call CUDA nor throw.
 * Each kind has one function; null removes it. A call that has begun may continue after the
 * removal, so function and data must stay valid. Returns -1 if there is no such thread. */
static inline int pillion_on_batch(uint32_t kind, void (*function)(void *data, uint32_t batch), void *data) {
    const pillion_v1 *table = pillion_table();
    return PILLION_HAS_(table, on_batch) ? table->on_batch(kind, function, data) : -1;
}

#ifdef __cplusplus
}
#endif
#endif
