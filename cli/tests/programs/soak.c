/* soak WHAT COUNT: very many objects of one kind.
 *
 *   threads    COUNT threads, 16 at a time, that launch once or twice and end
 *   contexts   COUNT contexts, one after the other, each with memory, a stream and launches
 *   streams    COUNT streams and events, each used and destroyed
 *   blocks     COUNT live allocations, freed from the middle outwards, far from both ends of a list
 *   modules    COUNT modules with a kernel of its own name, launched and unloaded; every tenth
 *              stays
 *   look-ups   COUNT look-ups by each of 8 threads: hooked names, other libraries' names, unknown
 *              names
 *
 * Prints by how much the process has grown, and how many more descriptors it has, from a tenth of
 * the way to the end. */
#include "cuda_min.h"
#include <dirent.h>

#define BATCH 16

static struct work work;
static unsigned long count, begun_kib;
static int begun_files;
static atomic_ulong wrong;

extern unsigned cuModuleUnload(CUmodule), cuStreamDestroy_v2(CUstream), cuEventCreate(void **, unsigned);
extern unsigned cuEventRecord(void *, CUstream), cuEventDestroy_v2(void *), cuEventSynchronize(void *);

static unsigned long resident_kib(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*u %lu", &pages) != 1) exit(3);
    fclose(file);
    return pages * (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
}

static int open_files(void) {
    int files = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder) != NULL) files++;
    closedir(folder);
    return files;
}

/* Call this in every round. It prints progress from time to time: on a slow machine a run takes
 * minutes. */
static void look(unsigned long round) {
    if (round % (count / 10) == 0) say("going on");
    if (round != count / 10) return;
    begun_kib = resident_kib();
    begun_files = open_files();
}

static void *short_life(void *number) {
    CHECK(cu.CtxSetCurrent(work.context));
    work_launch(&work, NULL);
    /* Stream 2 is the thread's default stream. */
    if ((uintptr_t)number % 2 == 0) work_launch(&work, (CUstream)2);
    return NULL;
}

static void threads(void) {
    pthread_t threads[BATCH];
    for (unsigned long done = 0; done < count; done += BATCH) {
        for (uintptr_t i = 0; i < BATCH; i++)
            if (pthread_create(&threads[i], NULL, short_life, (void *)i) != 0) exit(3);
        for (int i = 0; i < BATCH; i++) pthread_join(threads[i], NULL);
        for (unsigned long i = 0; i < BATCH; i++) look(done + i);
    }
}

static void contexts(void) {
    for (unsigned long round = 0; round < count; round++) {
        struct work own;
        CUstream stream;
        work_open(&own, PLAIN_IMAGE);
        CHECK(cu.StreamCreate(&stream, 0));
        for (int i = 0; i < 3; i++) work_launch(&own, i == 0 ? NULL : stream);
        work_check(&own);
        CHECK(cu.CtxDestroy(own.context));
        look(round);
    }
    CHECK(cu.CtxSetCurrent(work.context));
}

static void streams(void) {
    for (unsigned long round = 0; round < count; round++) {
        CUstream stream;
        void *event;
        CHECK(cu.StreamCreate(&stream, 0));
        CHECK(cuEventCreate(&event, 0));
        work_launch(&work, stream);
        CHECK(cuEventRecord(event, stream));
        if (round % 2 == 0) CHECK(cuEventSynchronize(event));
        CHECK(cuEventDestroy_v2(event));
        CHECK(cuStreamDestroy_v2(stream));
        look(round);
    }
}

static void blocks(void) {
    CUdeviceptr *blocks = calloc(count, sizeof *blocks);
    for (unsigned long i = 0; i < count; i++) {
        CHECK(cu.MemAlloc(&blocks[i], 512));
        if (i % 500 == 0) say("going on");
    }
    look(count / 10);
    for (unsigned long i = 0; i < count; i++) {
        unsigned long at = i % 2 == 0 ? count / 2 + i / 2 : count / 2 - 1 - i / 2;
        CHECK(cu.MemFree(blocks[at]));
        if (i % 500 == 0) say("going on");
    }
    free(blocks);
}

static void modules(void) {
    for (unsigned long round = 0; round < count; round++) {
        char image[256], name[64];
        CUmodule module;
        CUfunction kernel;
        snprintf(name, sizeof name, "kernel_%lu", round % 1000);
        snprintf(image, sizeof image,
                 "softgpu-module 1\nkernel %s block_ns=1000 regs=32 shared=0 compute=0.01 bandwidth=0.01\n", name);
        CHECK(cu.ModuleLoadData(&module, image));
        CHECK(cu.ModuleGetFunction(&kernel, module, name));
        launch(kernel, 1 + (unsigned)(round % 4), NULL, NULL);
        if (round % 10 != 0) CHECK(cuModuleUnload(module));
        look(round);
    }
}

static void *look_up(void *unused) {
    static const char *hooked[] = {"cuLaunchKernel", "cuMemAlloc_v2", "cuInit", "cuGetProcAddress_v2"};
    static const char *others[] = {"getenv", "cublasCreate_v2", "cuNothing", "cudaLaunchKernel"};
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *first[4], *next[4];
    (void)unused;
    for (int i = 0; i < 4; i++) first[i] = dlsym(library, hooked[i]);
    for (int i = 0; i < 4; i++) next[i] = dlsym(RTLD_NEXT, others[i]);
    for (unsigned long i = 0; i < count; i++) {
        int k = (int)(i % 4);
        int is_right = i % 8 < 4 ? dlsym(library, hooked[k]) == first[k] && first[k] != NULL
                                 : dlsym(RTLD_NEXT, others[k]) == next[k] && (next[k] != NULL) == (k == 0);
        if (!is_right) atomic_fetch_add(&wrong, 1);
    }
    return NULL;
}

static void look_ups(void) {
    pthread_t threads[8];
    look(count / 10);
    for (int i = 0; i < 8; i++)
        if (pthread_create(&threads[i], NULL, look_up, NULL) != 0) exit(3);
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        work_launch(&work, NULL);
    }
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    count = strtoul(argv[2], NULL, 10);
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    work_launch(&work, NULL);
    switch (argv[1][0]) {
    case 't': threads(); break;
    case 'c': contexts(); break;
    case 's': streams(); break;
    case 'b': blocks(); break;
    case 'm': modules(); break;
    default: look_ups();
    }
    work_check(&work);
    unsigned long kib = resident_kib();
    printf("grown_kib=%lu more_files=%d wrong=%lu\n", kib > begun_kib ? kib - begun_kib : 0,
           open_files() > begun_files ? open_files() - begun_files : 0, atomic_load(&wrong));
    say_asked();
    return 0;
}
