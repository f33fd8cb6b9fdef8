/* pillion.h: a program says when its requests begin and end.
 *
 * Header only, C99 and C++11, GCC and Clang. The program is linked with nothing of Pillion: in a
 * process without its library every call does nothing, in about a nanosecond.
 *
 *     pillion_request request = pillion_begin(arrived_ns, 0, batch);
 *     ... launch, wait, answer ...
 *     pillion_end(request);
 *
 * Times are ns of CLOCK_MONOTONIC. What returns int returns 0, or -1 if nothing was done. Only a
 * high-priority process that has a CUDA context has requests; elsewhere pillion_begin gives 0.
 */
#ifndef PILLION_H
#define PILLION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PILLION_ABI 1u

/* A request that has begun; 0: none. */
typedef uint64_t pillion_request;

/* What the library gives; it grows only at its end. */
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

/* Where the library is not there, these are null. The second is dlsym under a name of our own, so
 * that neither <dlfcn.h> nor -ldl is needed, and a static program links. */
extern const pillion_v1 *pillion_api(uint32_t abi) __attribute__((weak));
extern void *pillion_dlsym_(void *handle, const char *name) __asm__("dlsym") __attribute__((weak));

/* The table, or null; looked for once. */
static inline const pillion_v1 *pillion_table(void) {
    static const pillion_v1 *table;
    static int state; /* 0: not looked for, 1: absent, 2: there */
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

/* Whether the library has that function: an older one's table ends before it. */
#define PILLION_HAS_(table, field) \
    ((table) && (table)->size >= offsetof(pillion_v1, field) + sizeof((table)->field))

/* Work on a request begins. arrived_ns: when it arrived, 0 for now; in the future or more than an
 * hour ago it is refused. kind: which kind of request, as you count kinds. batch: 0 if unknown. */
static inline pillion_request pillion_begin(uint64_t arrived_ns, uint32_t kind, uint32_t batch) {
    const pillion_v1 *table = pillion_table();
    return PILLION_HAS_(table, begin) ? table->begin(arrived_ns, kind, batch) : 0;
}

/* It is answered. -1: it is not open (ended before, of another process, from before a fork). */
static inline int pillion_end(pillion_request request) {
    const pillion_v1 *table = pillion_table();
    return PILLION_HAS_(table, end) ? table->end(request) : -1;
}

/* It was given up. */
static inline int pillion_cancel(pillion_request request) {
    const pillion_v1 *table = pillion_table();
    return PILLION_HAS_(table, cancel) ? table->cancel(request) : -1;
}

/* A request of that kind is to take at most ns, for 500 to 999 of 1000 of them. */
static inline int pillion_slo(uint32_t kind, uint64_t ns, uint32_t per_mille) {
    const pillion_v1 *table = pillion_table();
    return PILLION_HAS_(table, slo) ? table->slo(kind, ns, per_mille) : -1;
}

/* The program has made an iteration; of either class. */
static inline int pillion_iteration(void) {
    const pillion_v1 *table = pillion_table();
    return PILLION_HAS_(table, iteration) ? table->iteration() : -1;
}

/* The program can work on requests of that kind in batches of least, least + step, and so on up to
 * most: 256 of them at the most, numbers (of the kind too) up to 65535, for 4 kinds. The daemon may
 * then want one of them (its section [tuner]), where the kind has a target in ms; begins say the
 * batch that they are of. To be said once, when there is a context. */
static inline int pillion_batch_range(uint32_t kind, uint32_t least, uint32_t most, uint32_t step) {
    const pillion_v1 *table = pillion_table();
    return PILLION_HAS_(table, batch_range) ? table->batch_range(kind, least, most, step) : -1;
}

/* The batch that is wanted of that kind; current where none is. To be asked before each batch: it
 * takes some loads, no lock and no system call. */
static inline uint32_t pillion_batch_wanted(uint32_t kind, uint32_t current) {
    const pillion_v1 *table = pillion_table();
    return PILLION_HAS_(table, batch_wanted) ? table->batch_wanted(kind, current) : current;
}

/* The function is called with that data when another batch is wanted of that kind, by a thread of
 * the library: it is to return soon, and to call neither CUDA nor throw. One function a kind; null
 * takes it back, and a call that has begun may still go on after that, so function and data must
 * stay. -1: there is no such thread. */
static inline int pillion_on_batch(uint32_t kind, void (*function)(void *data, uint32_t batch), void *data) {
    const pillion_v1 *table = pillion_table();
    return PILLION_HAS_(table, on_batch) ? table->on_batch(kind, function, data) : -1;
}

#ifdef __cplusplus
}
#endif
#endif
