/* Modules, libraries and launches on several devices of the driver API, in addition to cuda_min.h;
 * found by dlsym. */
#ifndef CODE_H
#define CODE_H

#include "cuda_min.h"

typedef void *CUlibrary, *CUkernel;
typedef struct {
    CUfunction function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
    CUstream stream;
    void **params;
} LaunchParams;

#define CODE_FUNCTIONS(X) \
    X(cuModuleUnload, (CUmodule)) \
    X(cuLibraryLoadData, (CUlibrary *, const void *, int *, void **, unsigned, int *, void **, unsigned)) \
    X(cuLibraryUnload, (CUlibrary)) \
    X(cuLibraryGetKernel, (CUkernel *, CUlibrary, const char *)) \
    X(cuLibraryEnumerateKernels, (CUkernel *, unsigned, CUlibrary)) \
    X(cuKernelGetFunction, (CUfunction *, CUkernel)) \
    X(cuLaunchCooperativeKernelMultiDevice, (LaunchParams *, unsigned, unsigned))

#define CODE_FIELD(name, parameters) CUresult(*name) parameters;
static struct { CODE_FUNCTIONS(CODE_FIELD) } code;

static void open_code(void) {
    open_door("dlsym");
    void *library = found(dlopen("libcuda.so.1", RTLD_NOW), "libcuda.so.1");
#define TAKE_CODE(name, parameters) code.name = found(dlsym(library, #name), #name);
    CODE_FUNCTIONS(TAKE_CODE)
}

#endif
