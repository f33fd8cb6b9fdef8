/* Several devices in one process. Arguments: "PCI-bus-id SMs" for each device that must be
 * visible. */
#include "cuda_min.h"

#define N 4096

/* Adds 1 to each element of a vector, `times` times, on the device of the current context. */
static void work(int times) {
    CUmodule module;
    CUfunction saxpy;
    CUdeviceptr x, y;
    float host[N], a = 1;
    unsigned n = N;
    DO(cuModuleLoadData(&module, "softgpu-module 1\n"));
    DO(cuModuleGetFunction(&saxpy, module, "saxpy"));
    DO(cuMemAlloc_v2(&x, sizeof host));
    DO(cuMemAlloc_v2(&y, sizeof host));
    for (int i = 0; i < N; i++) host[i] = 1;
    DO(cuMemcpyHtoD_v2(x, host, sizeof host));
    DO(cuMemcpyHtoD_v2(y, host, sizeof host));
    void *parameters[] = {&a, &x, &y, &n};
    for (int i = 0; i < times; i++) DO(cuLaunchKernel(saxpy, N / 256, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
    DO(cuMemcpyDtoH_v2(host, y, sizeof host));
    for (int i = 0; i < N; i++) SHOW(host[i] == (float)(1 + times));
    DO(cuMemFree_v2(x));
    DO(cuMemFree_v2(y));
}

int main(int count, char **arguments) {
    int seen = count - 1, number;
    if (seen == 0) {
        WANT(NO_DEVICE, cuInit(0));
        return 0;
    }
    DO(cuInit(0));
    DO(cuDeviceGetCount(&number));
    SHOW(number == seen);
    WANT(INVALID_DEVICE, cuDeviceGet(&number, seen));
    CUcontext contexts[16];
    CUdeviceptr memory[16];
    char uuids[16][16];
    for (int device = 0; device < seen; device++) {
        char id[16], facts[40];
        int sms, bus, found;
        DO(cuDeviceGetPCIBusId(id, sizeof id, device));
        DO(cuDeviceGetAttribute(&sms, 16, device));
        DO(cuDeviceGetAttribute(&bus, 33, device));
        snprintf(facts, sizeof facts, "%s %d", id, sms);
        SHOW(strcmp(facts, arguments[1 + device]) == 0);
        SHOW(bus == id[6] - '0');
        DO(cuDeviceGetByPCIBusId(&found, id));
        SHOW(found == device);
        DO(cuDeviceGetByPCIBusId(&found, id + 5));
        SHOW(found == device);
        DO(cuDeviceGetUuid_v2(uuids[device], device));
        DO(cuCtxCreate_v2(&contexts[device], 0, device));
        DO(cuCtxGetDevice(&found));
        SHOW(found == device);
        DO(cuMemAlloc_v2(&memory[device], 512));
    }
    WANT(INVALID_DEVICE, cuDeviceGetByPCIBusId(&number, "0000:7f:00.0"));
    WANT(INVALID_VALUE, cuDeviceGetByPCIBusId(&number, "nonsense"));
    for (int a = 0; a < seen; a++) for (int b = 0; b < seen; b++) {
        int can = 7;
        DO(cuDeviceCanAccessPeer(&can, a, b));
        SHOW(can == 0);
        if (a == b) {
            WANT(INVALID_DEVICE, cuDeviceGetP2PAttribute(&can, 2, a, b));
            continue;
        }
        SHOW(memory[a] != memory[b] && memcmp(uuids[a], uuids[b], 16) != 0);
        DO(cuDeviceGetP2PAttribute(&can, 2, a, b));
        SHOW(can == 0);
        WANT(INVALID_VALUE, cuDeviceGetP2PAttribute(&can, 99, a, b));
    }
    /* A stream belongs to the context that was current at its creation, and works with any current
     * context. */
    for (int device = 0; device < seen; device++) {
        CUstream stream;
        CUcontext owner;
        DO(cuCtxSetCurrent(contexts[device]));
        DO(cuStreamCreate(&stream, 0));
        work(3 + 2 * device);
        DO(cuCtxSetCurrent(contexts[(device + 1) % seen]));
        DO(cuStreamSynchronize(stream));
        DO(cuStreamGetCtx(stream, &owner));
        SHOW(owner == contexts[device]);
        DO(cuStreamDestroy_v2(stream));
    }
    /* Pinned memory belongs to every device. */
    char *pinned;
    DO(cuMemHostAlloc((void **)&pinned, 512, 0));
    for (int device = 0; device < seen; device++) {
        DO(cuCtxSetCurrent(contexts[device]));
        memset(pinned, 'a' + device, 512);
        DO(cuMemcpyHtoD_v2(memory[device], pinned, 512));
        memset(pinned, 0, 512);
        DO(cuMemcpyDtoH_v2(pinned, memory[device], 512));
        SHOW(pinned[0] == 'a' + device && pinned[511] == 'a' + device);
    }
    for (int device = 0; device < seen; device++) DO(cuCtxDestroy_v2(contexts[device]));
    return 0;
}
