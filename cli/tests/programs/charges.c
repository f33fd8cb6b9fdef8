/* charges MODE: takes and gives back device memory in ways of its own, and says "look" before each line that it reads.
 *
 *   variable  a module's variable, found twice, and gone with the module
 *   green     memory that is allocated in a green context, which ends before it is freed
 *   contexts  the last context of the device ends, and another comes
 *   exec      holds 700 MiB and becomes the same program with the mode "again"
 *   again     allocates 700 MiB, says "granted" or "refused" */
#include "cuda_mem.h"

#define MIB ((size_t)1 << 20)
#define IMAGE ".version 8.0\n.target sm_70\n.address_size 64\n.visible .global .align 16 .b8 table[3000000];\n" \
    ".visible .entry nothing()\n{\n\tret;\n}\n"

typedef struct { unsigned type; char internal[92]; unsigned sms; char rest[44]; } Resource;
CUresult cuModuleLoadData(void **, const void *);
CUresult cuModuleUnload(void *);
CUresult cuModuleGetGlobal_v2(CUdeviceptr *, size_t *, void *, const char *);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice);
CUresult cuDeviceGetDevResource(CUdevice, Resource *, unsigned);
CUresult cuDevResourceGenerateDesc(void **, Resource *, unsigned);
CUresult cuGreenCtxCreate(void **, void *, CUdevice, unsigned);
CUresult cuGreenCtxDestroy(void *);
CUresult cuCtxFromGreenCtx(CUcontext *, void *);

static void look(void) {
    char line[8];
    puts("look");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) exit(0);
}

static void variable(void) {
    void *module;
    CUdeviceptr address, again;
    size_t bytes;
    start_context();
    CHECK(cuModuleLoadData(&module, IMAGE));
    CHECK(cuModuleGetGlobal_v2(&address, &bytes, module, "table"));
    SHOW(bytes == 3000000);
    CHECK(cuModuleGetGlobal_v2(&again, &bytes, module, "table"));
    SHOW(address == again);
    look();
    CHECK(cuModuleUnload(module));
    look();
}

static void green(void) {
    Resource sms;
    CUcontext primary, context;
    void *description, *green;
    CUdeviceptr address;
    CHECK(cuDevicePrimaryCtxRetain(&primary, 0));
    CHECK(cuDeviceGetDevResource(0, &sms, 1));
    CHECK(cuDevResourceGenerateDesc(&description, &sms, 1));
    CHECK(cuGreenCtxCreate(&green, description, 0, 1));
    CHECK(cuCtxFromGreenCtx(&context, green));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc_v2(&address, 64 * MIB));
    look();
    CHECK(cuCtxSetCurrent(primary));
    CHECK(cuGreenCtxDestroy(green));
    look();
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    look();
}

static void contexts(void) {
    CUcontext context;
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    look();
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    look();
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    look();
}

static void hold(const char *program) {
    CUdeviceptr address;
    start_context();
    CUresult result = cuMemAlloc_v2(&address, 700 * MIB);
    puts(result == 0 ? "granted" : result == OUT_OF_MEMORY ? "refused" : "wrong");
    fflush(stdout);
    look();
    if (program) execl("/proc/self/exe", program, "again", NULL);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    CHECK(cuInit(0));
    if (!strcmp(argv[1], "variable")) variable();
    else if (!strcmp(argv[1], "green")) green();
    else if (!strcmp(argv[1], "contexts")) contexts();
    else hold(!strcmp(argv[1], "exec") ? argv[0] : NULL);
    return 0;
}
