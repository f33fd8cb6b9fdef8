/* identity WHAT N: kernels that are recognised by name and needs, with any handles.
 *
 *   twins N     two modules with a kernel of the same name and different needs, N launches each
 *   modules N   N modules, one after the other; those with even numbers have the kernel "known",
 *               the others "other"
 *   libraries N the same with libraries, whose kernels are launched directly
 *   contexts N  the same with contexts that are destroyed with their modules
 *   names N     N kernels of different names, each launched twice
 *
 * Prints how many launches were of "other", and how many handles there were. */
#include "code.h"

#define KERNEL(name, regs, shared) \
    "kernel " name " block_ns=1000 regs=" #regs " shared=" #shared " compute=0.1 bandwidth=0.1\n"
static const char *const KNOWN = PLAIN_IMAGE KERNEL("known", 32, 0);
static const char *const OTHER = PLAIN_IMAGE KERNEL("other", 32, 0);

static unsigned long others;
/* Distinct handles, while there are few. */
static void *handles[64];
static unsigned handles_count;

static void note(void *handle) {
    for (unsigned i = 0; i < handles_count; i++)
        if (handles[i] == handle) return;
    if (handles_count < 64) handles[handles_count++] = handle;
}

static void launch_shape(CUfunction function, unsigned blocks) {
    note(function);
    CHECK(cu.LaunchKernel(function, blocks, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL));
    atomic_fetch_add(&asked.launches, 1);
}

static void twins(unsigned n) {
    CUmodule light, heavy;
    CUfunction first, second;
    CHECK(cu.ModuleLoadData(&light, PLAIN_IMAGE KERNEL("twin", 32, 0)));
    CHECK(cu.ModuleLoadData(&heavy, PLAIN_IMAGE KERNEL("twin", 128, 40000)));
    CHECK(cu.ModuleGetFunction(&first, light, "twin"));
    CHECK(cu.ModuleGetFunction(&second, heavy, "twin"));
    for (unsigned i = 0; i < n; i++) {
        launch_shape(first, 80);
        launch_shape(second, 80);
    }
}

static void modules(unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        CUmodule module;
        CUfunction function;
        CHECK(cu.ModuleLoadData(&module, i % 2 ? OTHER : KNOWN));
        CHECK(cu.ModuleGetFunction(&function, module, i % 2 ? "other" : "known"));
        launch_shape(function, 4);
        others += i % 2;
        CHECK(code.cuModuleUnload(module));
    }
}

static void libraries(unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        CUlibrary library;
        CUkernel kernel, all[8];
        CUfunction function;
        CHECK(code.cuLibraryLoadData(&library, i % 2 ? OTHER : KNOWN, NULL, NULL, 0, NULL, NULL, 0));
        if (i % 4 < 2) {
            CHECK(code.cuLibraryGetKernel(&kernel, library, i % 2 ? "other" : "known"));
        } else {
            CHECK(code.cuLibraryEnumerateKernels(all, 8, library));
            kernel = all[0];
        }
        launch_shape(kernel, 4);
        CHECK(code.cuKernelGetFunction(&function, kernel));
        launch_shape(function, 4);
        others += 2 * (i % 2);
        CHECK(code.cuLibraryUnload(library));
    }
}

static void contexts(unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        CUcontext context;
        CUmodule module;
        CUfunction function;
        CHECK(cu.CtxCreate(&context, 0, 0));
        CHECK(cu.ModuleLoadData(&module, i % 2 ? OTHER : KNOWN));
        CHECK(cu.ModuleGetFunction(&function, module, i % 2 ? "other" : "known"));
        launch_shape(function, 4);
        CHECK(cu.CtxSynchronize());
        others += i % 2;
        CHECK(cu.CtxDestroy(context));
    }
}

static void names(unsigned n) {
    char *image = malloc(100 * (size_t)n + 100), *end = image;
    CUmodule module;
    end += sprintf(end, "%s", PLAIN_IMAGE);
    for (unsigned i = 0; i < n; i++)
        end += sprintf(end, "kernel name%u block_ns=100 regs=32 shared=0 compute=0.1 bandwidth=0.1\n", i);
    CHECK(cu.ModuleLoadData(&module, image));
    for (unsigned i = 0; i < n; i++) {
        char name[32];
        CUfunction function;
        sprintf(name, "name%u", i);
        CHECK(cu.ModuleGetFunction(&function, module, name));
        launch_shape(function, 1);
        launch_shape(function, 1);
        others += 2;
    }
    CHECK(cu.CtxSynchronize());
}

int main(int argc, char **argv) {
    struct work work;
    if (argc != 3) return 2;
    unsigned n = (unsigned)atoi(argv[2]);
    open_code();
    work_open(&work, PLAIN_IMAGE);
    if (!strcmp(argv[1], "twins")) twins(n);
    if (!strcmp(argv[1], "modules")) modules(n);
    if (!strcmp(argv[1], "libraries")) libraries(n);
    if (!strcmp(argv[1], "contexts")) contexts(n);
    if (!strcmp(argv[1], "names")) names(n);
    CHECK(cu.CtxSetCurrent(work.context));
    work_check(&work);
    printf("others=%lu handles=%u\n", others, handles_count);
    say_asked();
    return 0;
}
