/* Images that real tools wrote: argv[1] is the folder of softgpu's test images; the device is a T4
 * (7.5). */
#include "code.h"

static char *folder;

static void *contents(const char *name, size_t *bytes) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    SHOW(file);
    char *image = calloc(1, 1 << 20);
    *bytes = fread(image, 1, (1 << 20) - 1, file);
    fclose(file);
    return image;
}

static void expect_params(CUfunction big) {
    size_t count, offset, size, want[4][2] = {{0, 1}, {2, 26}, {32, 8}, {40, 8}};
    DO(cuFuncGetParamCount(big, &count));
    SHOW(count == 4);
    for (size_t i = 0; i < count; i++) {
        DO(cuFuncGetParamInfo(big, i, &offset, &size));
        SHOW(offset == want[i][0] && size == want[i][1]);
    }
    DO(cuFuncGetParamInfo(big, 0, &offset, NULL));
    WANT(INVALID_VALUE, cuFuncGetParamInfo(big, 4, &offset, &size));
    WANT(INVALID_VALUE, cuFuncGetParamInfo(big, 0, NULL, &size));
}

static int attribute(CUfunction function, int which) {
    int value;
    DO(cuFuncGetAttribute(&value, which, function));
    return value;
}

static void launch(CUfunction function) {
    char arguments[64] = {0};
    void *params[4] = {arguments, arguments, arguments, arguments};
    DO(cuLaunchKernel(function, 2, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
    WANT(INVALID_VALUE, cuLaunchKernel(function, 2, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    DO(cuCtxSynchronize());
}

static void modules(void) {
    size_t bytes;
    unsigned count;
    CUmodule module, of;
    CUfunction big, again, all[3] = {0};
    char path[4096];
    void *cubin = contents("sm_75.cubin", &bytes);
    DO(cuModuleLoadData(&module, cubin));
    free(cubin);
    DO(cuModuleGetFunctionCount(&count, module));
    SHOW(count == 2);
    DO(cuModuleGetFunction(&big, module, "big"));
    DO(cuModuleGetFunction(&again, module, "big"));
    SHOW(big == again);
    DO(cuModuleEnumerateFunctions(all, 3, module));
    SHOW(all[0] != all[1] && (all[0] == big || all[1] == big) && !all[2]);
    WANT(NOT_FOUND, cuModuleGetFunction(&again, module, "bi"));
    WANT(NOT_FOUND, cuModuleGetFunction(&again, module, "fill"));
    WANT(INVALID_VALUE, cuModuleGetFunction(NULL, module, "big"));
    WANT(INVALID_VALUE, cuModuleGetFunction(&again, module, NULL));
    WANT(INVALID_HANDLE, cuModuleGetFunction(&again, (CUmodule)big, "big"));
    DO(cuFuncGetModule(&of, big));
    SHOW(of == module);
    expect_params(big);
    SHOW(attribute(big, 0) == 256 && attribute(big, 1) == 0 && attribute(big, 3) == 32 && attribute(big, 4) == 40);
    DO(cuModuleGetFunction(&again, module, "_Z5scaleIfEvPT_S0_id"));
    SHOW(attribute(again, 0) == 1024 && attribute(again, 1) == 256 && attribute(again, 4) == 9);
    int loaded = 0;
    DO(cuFuncIsLoaded(&loaded, big));
    SHOW(loaded == 1);
    DO(cuFuncLoad(big));
    DO(cuFuncSetCacheConfig(big, 2));
    WANT(INVALID_VALUE, cuFuncSetCacheConfig(big, 4));
    launch(big);
    /* __launch_bounds__(256) */
    char arguments[64] = {0};
    void *params[4] = {arguments, arguments, arguments, arguments};
    WANT(OUT_OF_RESOURCES, cuLaunchKernel(big, 1, 1, 1, 257, 1, 1, 0, NULL, params, NULL));

    /* Variables have their own memory, as long as the module lives. */
    CUdeviceptr address, same;
    unsigned value = 7;
    DO(cuModuleGetGlobal_v2(&address, &bytes, module, "table"));
    SHOW(bytes == 64);
    DO(cuModuleGetGlobal_v2(&same, NULL, module, "table"));
    DO(cuModuleGetGlobal_v2(NULL, &bytes, module, "counter"));
    SHOW(same == address && bytes == 4);
    WANT(NOT_FOUND, cuModuleGetGlobal_v2(&same, &bytes, module, "big"));
    DO(cuMemcpyHtoD_v2(address, &value, 4));
    value = 0;
    DO(cuMemcpyDtoH_v2(&value, address, 4));
    SHOW(value == 7);
    void *reference;
    WANT(NOT_FOUND, cuModuleGetTexRef(&reference, module, "texture"));
    DO(cuModuleUnload(module));
    WANT(INVALID_HANDLE, cuModuleUnload(module));
    WANT(INVALID_HANDLE, cuFuncLoad(big));
    WANT(INVALID_HANDLE, cuLaunchKernel(big, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    WANT(INVALID_VALUE, cuMemcpyDtoH_v2(&value, address, 4));

    /* Other kinds of images, and images for other devices. */
    snprintf(path, sizeof path, "%s/two.fatbin", folder);
    DO(cuModuleLoad(&module, path));
    DO(cuModuleGetFunction(&big, module, "big"));
    expect_params(big);
    launch(big);
    DO(cuModuleUnload(module));
    WANT(FILE_NOT_FOUND, cuModuleLoad(&module, "/nowhere/at/all"));
    void *fat = contents("two.fatbin", &bytes);
    struct { unsigned magic, version; void *data, *more; } wrapper = {0x466243b1, 1, fat, NULL};
    DO(cuModuleLoadFatBinary(&module, &wrapper));
    DO(cuModuleGetFunction(&big, module, "big"));
    wrapper.data = &wrapper;
    WANT(INVALID_IMAGE, cuModuleLoadFatBinary(&module, &wrapper));
    free(fat);
    void *other = contents("sm_90.cubin", &bytes);
    WANT(NO_BINARY, cuModuleLoadData(&module, other));
    free(other);
    char said[200] = "";
    int options[2] = {5, 6};
    void *values[2] = {said, (void *)sizeof said};
    WANT(INVALID_PTX, cuModuleLoadDataEx(&module, "// .version\n.target sm_75", 2, options, values));
    SHOW(strstr(said, "PTX"));
}

static void libraries(CUcontext context) {
    size_t bytes, offset, size;
    unsigned count;
    int value;
    const char *name;
    CUlibrary library, of;
    CUkernel big, again, all[2];
    CUfunction function, same;
    CUmodule module;
    void *cubin = contents("sm_75.cubin", &bytes);
    DO(cuLibraryLoadData(&library, cubin, NULL, NULL, 0, NULL, NULL, 0));
    WANT(INVALID_VALUE, cuLibraryLoadData(NULL, cubin, NULL, NULL, 0, NULL, NULL, 0));
    DO(cuLibraryGetKernelCount(&count, library));
    SHOW(count == 2);
    DO(cuLibraryGetKernel(&big, library, "big"));
    DO(cuLibraryEnumerateKernels(all, 2, library));
    SHOW(all[0] == big || all[1] == big);
    WANT(NOT_FOUND, cuLibraryGetKernel(&again, library, "bigger"));
    WANT(INVALID_HANDLE, cuLibraryGetKernel(&again, (CUlibrary)big, "big"));
    DO(cuKernelGetName(&name, big));
    SHOW(!strcmp(name, "big"));
    DO(cuKernelGetLibrary(&of, big));
    SHOW(of == library);
    DO(cuKernelGetAttribute(&value, 4, big, 0));
    SHOW(value == 40);
    WANT(INVALID_DEVICE, cuKernelGetAttribute(&value, 4, big, 9));
    DO(cuKernelGetParamCount(big, &bytes));
    SHOW(bytes == 4);
    DO(cuKernelGetParamInfo(big, 1, &offset, &size));
    SHOW(offset == 2 && size == 26);

    /* A kernel can be launched directly, or as its function in this context. */
    launch((CUfunction)big);
    DO(cuKernelGetFunction(&function, big));
    DO(cuKernelGetFunction(&same, big));
    SHOW(function == same && (void *)function != (void *)big);
    launch(function);
    DO(cuLibraryGetModule(&module, library));
    DO(cuModuleGetFunction(&same, module, "big"));
    SHOW(function == same);
    WANT(NOT_PERMITTED, cuModuleUnload(module));
    SHOW(attribute((CUfunction)big, 4) == 40);

    /* An attribute of a kernel applies to its functions, unless they have their own value. */
    DO(cuKernelSetAttribute(8, 50 * 1024, big, 0));
    WANT(INVALID_VALUE, cuKernelSetAttribute(8, 1 << 20, big, 0));
    DO(cuKernelGetFunction(&function, big));
    SHOW(attribute(function, 8) == 50 * 1024);
    DO(cuFuncSetAttribute(function, 8, 60 * 1024));
    DO(cuKernelSetAttribute(8, 40 * 1024, big, 0));
    DO(cuKernelGetFunction(&function, big));
    SHOW(attribute(function, 8) == 60 * 1024);

    CUdeviceptr address;
    DO(cuLibraryGetGlobal(&address, &bytes, library, "table"));
    SHOW(bytes == 64);
    WANT(NOT_FOUND, cuLibraryGetManaged(&address, &bytes, library, "table"));

    /* Another context has its own functions; they end with it, but the kernel does not. */
    CUcontext second;
    DO(cuCtxCreate_v2(&second, 0, 0));
    DO(cuKernelGetFunction(&same, big));
    SHOW(same != function);
    launch((CUfunction)big);
    DO(cuCtxDestroy_v2(second));
    WANT(INVALID_HANDLE, cuFuncLoad(same));
    DO(cuCtxSetCurrent(context));
    DO(cuKernelGetFunction(&same, big));
    SHOW(same == function);
    DO(cuLibraryUnload(library));
    WANT(INVALID_HANDLE, cuLibraryUnload(library));
    WANT(INVALID_HANDLE, cuKernelGetName(&name, big));
    WANT(INVALID_HANDLE, cuFuncLoad(function));
    WANT(INVALID_HANDLE, cuLaunchKernel((CUfunction)big, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    WANT(FILE_NOT_FOUND, cuLibraryLoadFromFile(&library, "/nowhere", NULL, NULL, 0, NULL, NULL, 0));
    free(cubin);
}

static void linkings(void) {
    size_t bytes, size;
    CUlinkState state;
    CUmodule module;
    CUfunction function;
    void *image;
    char path[4096];
    char *more = ".version 8.0 .target sm_70 .address_size 64 .entry more(.param .u64 p) { ret; }";
    void *cubin = contents("sm_75.cubin", &bytes);
    DO(cuLinkCreate_v2(0, NULL, NULL, &state));
    WANT(INVALID_IMAGE, cuLinkAddData_v2(state, INPUT_CUBIN, more, strlen(more), "x", 0, NULL, NULL));
    WANT(INVALID_PTX, cuLinkAddData_v2(state, INPUT_PTX, cubin, bytes, "x", 0, NULL, NULL));
    WANT(NOT_SUPPORTED, cuLinkAddData_v2(state, INPUT_NVVM, cubin, bytes, "x", 0, NULL, NULL));
    DO(cuLinkAddData_v2(state, INPUT_CUBIN, cubin, bytes, "a", 0, NULL, NULL));
    DO(cuLinkAddData_v2(state, INPUT_PTX, more, strlen(more) + 1, "b", 0, NULL, NULL));
    DO(cuLinkComplete(state, &image, &size));
    DO(cuModuleLoadData(&module, image));
    DO(cuModuleGetFunction(&function, module, "more"));
    DO(cuModuleGetFunction(&function, module, "big"));
    expect_params(function);
    DO(cuLinkDestroy(state));
    WANT(INVALID_HANDLE, cuLinkDestroy(state));
    DO(cuModuleUnload(module));
    snprintf(path, sizeof path, "%s/sm_75.cubin", folder);
    DO(cuLinkCreate_v2(0, NULL, NULL, &state));
    DO(cuLinkAddFile_v2(state, INPUT_CUBIN, path, 0, NULL, NULL));
    WANT(FILE_NOT_FOUND, cuLinkAddFile_v2(state, INPUT_CUBIN, "/nowhere", 0, NULL, NULL));
    DO(cuLinkComplete(state, &image, &size));
    SHOW(size == bytes && !memcmp(image, cubin, bytes));
    DO(cuLinkDestroy(state));
    free(cubin);
}

int main(int count, char **arguments) {
    SHOW(count == 2);
    folder = arguments[1];
    CUcontext context = start();
    modules();
    libraries(context);
    linkings();
    return 0;
}
