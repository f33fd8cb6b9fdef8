/* Impossible requests are refused with CUDA's error code. */
#include "cuda_min.h"

int main(void) {
    int number;
    size_t free_bytes, total;
    CUdeviceptr memory, more;
    CUcontext context, current;
    WANT(NOT_INITIALIZED, cuDeviceGetCount(&number));
    WANT(NOT_INITIALIZED, cuCtxSynchronize());
    DO(cuDriverGetVersion(&number));
    SHOW(number == 12080);
    WANT(INVALID_VALUE, cuInit(1));
    DO(cuInit(0));
    DO(cuInit(0));
    DO(cuDeviceGetCount(&number));
    SHOW(number == 1);
    WANT(INVALID_DEVICE, cuDeviceGet(&number, 1));
    WANT(INVALID_CONTEXT, cuCtxSynchronize());
    WANT(INVALID_CONTEXT, cuMemAlloc_v2(&memory, 1));
    WANT(INVALID_CONTEXT, cuCtxPopCurrent_v2(&context));
    WANT(INVALID_CONTEXT, cuCtxSetCurrent((CUcontext)0x1234));

    context = start();
    int active;
    unsigned flags;
    DO(cuDevicePrimaryCtxGetState(0, &flags, &active));
    SHOW(active == 1);
    WANT(INVALID_CONTEXT, cuCtxDestroy_v2(context));
    WANT(INVALID_VALUE, cuMemAlloc_v2(NULL, 1));
    WANT(INVALID_VALUE, cuMemAlloc_v2(&memory, 0));
    DO(cuMemGetInfo_v2(&free_bytes, &total));
    WANT(OUT_OF_MEMORY, cuMemAlloc_v2(&memory, free_bytes + 1));
    DO(cuMemAlloc_v2(&memory, free_bytes - 512));
    WANT(OUT_OF_MEMORY, cuMemAlloc_v2(&more, 1024));
    DO(cuMemFree_v2(memory));
    DO(cuMemFree_v2(0));
    DO(cuMemAlloc_v2(&memory, 1000));
    char host[2000];
    WANT(INVALID_VALUE, cuMemcpyHtoD_v2(memory, host, 1001));
    WANT(INVALID_VALUE, cuMemcpyDtoH_v2(host, memory + 1, 1000));
    WANT(INVALID_VALUE, cuMemcpyDtoD_v2(memory, memory + 5000000, 8));
    WANT(INVALID_VALUE, cuMemcpyHtoD_v2((CUdeviceptr)host, host, 8));
    DO(cuMemcpyHtoD_v2(memory, host, 0));

    CUmodule module;
    CUfunction f, shorter, fill;
    WANT(INVALID_VALUE, cuModuleLoadData(&module, NULL));
    WANT(INVALID_IMAGE, cuModuleLoadData(&module, "softgpu-module 1\nkernel"));
    WANT(INVALID_IMAGE, cuModuleLoadData(&module, "garbage"));
    WANT(INVALID_IMAGE, cuModuleLoadData(&module, "\x01\x02"));
    WANT(INVALID_IMAGE, cuModuleLoadData(&module, ""));
    DO(cuModuleLoadData(&module, "softgpu-module 1\n"));
    DO(cuModuleGetFunction(&fill, module, "fill"));
    WANT(NOT_FOUND, cuModuleGetFunction(&f, module, "long"));
    shorter = function("short");
    const char *name;
    DO(cuFuncGetName(&name, shorter));
    SHOW(strcmp(name, "short") == 0);
    WANT(INVALID_HANDLE, cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    WANT(INVALID_HANDLE, cuLaunchKernel((CUfunction)&host, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    WANT(INVALID_HANDLE, cuLaunchKernel(shorter, 1, 1, 1, 1, 1, 1, 0, (CUstream)&host, NULL, NULL));
    WANT(INVALID_VALUE, cuLaunchKernel(shorter, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    WANT(INVALID_VALUE, cuLaunchKernel(shorter, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    WANT(INVALID_VALUE, cuLaunchKernel(shorter, 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, NULL));
    WANT(INVALID_VALUE, cuLaunchKernel(shorter, 1, 1, 1, 1, 1, 1, 48 * 1024 + 1, NULL, NULL, NULL));
    WANT(INVALID_VALUE, cuFuncSetAttribute(shorter, 8, 96 * 1024 + 1));
    DO(cuFuncSetAttribute(shorter, 8, 96 * 1024));
    DO(cuLaunchKernel(shorter, 1, 1, 1, 1, 1, 1, 96 * 1024, NULL, NULL, NULL));
    WANT(INVALID_VALUE, cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    WANT(INVALID_VALUE, cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, (void *[]){NULL}));
    WANT(INVALID_VALUE, cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, (void *[]){(void *)9, NULL, NULL}));
    WANT(INVALID_VALUE, cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){NULL}, (void *[]){NULL}));
    WANT(TOO_LARGE, cuLaunchCooperativeKernel(shorter, 10000, 1, 1, 1024, 1, 1, 0, NULL, NULL));
    DO(cuLaunchCooperativeKernel(shorter, 80, 1, 1, 1024, 1, 1, 0, NULL, NULL));
    DO(cuOccupancyMaxActiveBlocksPerMultiprocessor(&number, shorter, 1024, 0));
    SHOW(number == 2);

    /* Priorities are clamped, attributes are read. */
    int least, greatest;
    CUstream stream;
    DO(cuCtxGetStreamPriorityRange(&least, &greatest));
    SHOW(least == 0 && greatest == -5);
    DO(cuStreamCreateWithPriority(&stream, 0, -100));
    DO(cuStreamGetPriority(stream, &number));
    SHOW(number == -5);
    WANT(INVALID_VALUE, cuStreamCreate(&stream, 7));
    Attribute attribute = {.id = 8, .value.number = -3};
    LaunchConfig config = {1, 1, 1, 32, 1, 1, 0, NULL, &attribute, 1};
    DO(cuLaunchKernelEx(&config, shorter, NULL, NULL));
    attribute.id = 4;
    attribute.value.dim[0] = 2;
    WANT(NOT_SUPPORTED, cuLaunchKernelEx(&config, shorter, NULL, NULL));
    attribute.id = 99;
    WANT(INVALID_VALUE, cuLaunchKernelEx(&config, shorter, NULL, NULL));
    DO(cuCtxSynchronize());

    /* Entry points by name. */
    void *found, *other;
    int status;
    DO(cuGetProcAddress_v2("cuMemAlloc", &found, 12080, 0, &status));
    SHOW(found == (void *)cuMemAlloc_v2 && status == 0);
    DO(cuGetProcAddress_v2("cuGetProcAddress", &found, 12080, 0, NULL));
    SHOW(found == (void *)cuGetProcAddress_v2);
    DO(cuGetProcAddress_v2("cuLaunchKernel", &found, 12080, 0, NULL));
    DO(cuGetProcAddress_v2("cuLaunchKernel", &other, 12080, 2, NULL));
    SHOW(found == (void *)cuLaunchKernel && other != found && other);
    DO(cuGetProcAddress_v2("cuLaunchKernel", &found, 12080, 3, NULL));
    SHOW(found == other);
    DO(cuGetProcAddress_v2("cuLaunchKernel", &other, -1, 2, NULL));
    SHOW(found == other);
    DO(cuGetProcAddress_v2("", &found, 0, 0, &status));
    SHOW(status == 1 && !found);
    found = other;
    DO(cuGetProcAddress_v2("cuGraphCreate", &found, 9000, 0, &status));
    SHOW(status == 2 && !found);
    found = other;
    status = 77;
    WANT(INVALID_VALUE, cuGetProcAddress_v2("cuInit", &found, 12080, 9, &status));
    SHOW(status == 77 && found == other);
    WANT(NOT_FOUND, cuGetProcAddress("cuGraphCreate", &found, 9000, 0));
    SHOW(found == other);
    WANT(NOT_SUPPORTED, cuGraphicsUnregisterResource(host));
    WANT(NOT_SUPPORTED, cuGetExportTable((const void **)&found, host));
    DO(cuGetErrorName(700, &name));
    SHOW(strcmp(name, "CUDA_ERROR_ILLEGAL_ADDRESS") == 0);
    WANT(INVALID_VALUE, cuGetErrorName(12345, &name));

    /* Contexts form a stack; a destroyed one is reported. */
    CUcontext second;
    DO(cuCtxCreate_v2(&second, 0, 0));
    DO(cuCtxGetCurrent(&current));
    SHOW(current == second);
    WANT(INVALID_HANDLE, cuLaunchKernel(shorter, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    DO(cuMemAlloc_v2(&more, 1 << 20));
    DO(cuCtxPushCurrent_v2(second));
    DO(cuCtxDestroy_v2(second));
    WANT(DESTROYED, cuCtxSynchronize());
    DO(cuCtxPopCurrent_v2(NULL));
    DO(cuCtxGetCurrent(&current));
    SHOW(current == context);

    /* A kernel that accesses memory outside its allocations breaks the context for good. */
    float one = 1;
    unsigned n = 1 << 20;
    run(fill, 1, NULL, (void *[]){&memory, &one, &n});
    WANT(ILLEGAL_ADDRESS, cuCtxSynchronize());
    WANT(ILLEGAL_ADDRESS, cuMemAlloc_v2(&more, 1));
    WANT(ILLEGAL_ADDRESS, cuLaunchKernel(shorter, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    DO(cuDevicePrimaryCtxRelease_v2(0));
    start();
    DO(cuMemAlloc_v2(&more, 1));
    DO(cuCtxSynchronize());
    return 0;
}
