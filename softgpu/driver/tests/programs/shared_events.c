/* Two processes share an event: one records it and the other waits for it, on the host and on a
 * stream, and the other way round. */
#include "cuda_min.h"
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct { char bytes[64]; } Handle;

CUresult cuIpcGetMemHandle(Handle *, CUdeviceptr);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *, Handle, unsigned);
CUresult cuIpcCloseMemHandle(CUdeviceptr);
CUresult cuIpcGetEventHandle(Handle *, CUevent);
CUresult cuIpcOpenEventHandle(CUevent *, Handle);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, unsigned, unsigned);

enum { NO_TIMING = 2, SHARED = 4, NON_BLOCKING = 1, RECORDS = 200 };

static void tell(int peer) { SHOW(write(peer, "x", 1) == 1); }

static void hear(int peer) {
    char byte;
    SHOW(read(peer, &byte, 1) == 1);
}

/* Stops a stream until `value` is written to the gate. */
static void close_gate(CUstream stream, CUdeviceptr gate, unsigned value) {
    DO(cuStreamWaitValue32_v2(stream, gate, value, 0));
}

static void open_gate(CUdeviceptr gate, unsigned value) { DO(cuMemcpyHtoD_v2(gate, &value, 4)); }

static void importer(int peer) {
    Handle handles[2], bad;
    CUdeviceptr memory;
    CUevent event, own;
    CUstream stream;
    char word[8];
    SHOW(read(peer, handles, sizeof handles) == sizeof handles);
    start();
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuIpcOpenMemHandle_v2(&memory, handles[0], 1));
    WANT(INVALID_VALUE, cuIpcOpenEventHandle(NULL, handles[1]));
    WANT(INVALID_HANDLE, cuIpcOpenEventHandle(&event, handles[0]));
    bad = handles[1];
    memset(bad.bytes + 8, 0x55, 8);
    WANT(INVALID_HANDLE, cuIpcOpenEventHandle(&event, bad));
    DO(cuIpcOpenEventHandle(&event, handles[1]));
    WANT(INVALID_HANDLE, cuIpcGetEventHandle(&bad, event));
    WANT(INVALID_HANDLE, cuEventElapsedTime(&(float){0}, event, event));

    /* The other process recorded it after a gate, so it is not reached; the stream here copies only
     * afterwards. */
    WANT(NOT_READY, cuEventQuery(event));
    DO(cuStreamWaitEvent(stream, event, 0));
    DO(cuMemcpyDtoDAsync_v2(memory + 24, memory + 8, 8, stream));
    WANT(NOT_READY, cuStreamQuery(stream));
    tell(peer);
    DO(cuStreamSynchronize(stream));
    DO(cuMemcpyDtoH_v2(word, memory + 24, 8));
    SHOW(memcmp(word, "exported", 8) == 0);
    DO(cuEventSynchronize(event));
    DO(cuEventQuery(event));

    /* Recorded here; the other process waits for it on the host. */
    DO(cuMemcpyHtoDAsync_v2(memory + 16, "imported", 8, stream));
    close_gate(stream, memory, 2);
    DO(cuEventRecord(event, stream));
    WANT(NOT_READY, cuEventQuery(event));
    tell(peer);
    DO(cuEventSynchronize(event));

    /* More records than there are words for, and an event that is destroyed before its stream
     * reaches the record. */
    for (int i = 0; i < RECORDS; i++)
        DO(cuEventRecord(event, stream));
    DO(cuEventSynchronize(event));
    DO(cuEventCreate(&own, NO_TIMING | SHARED));
    close_gate(stream, memory, 3);
    DO(cuEventRecord(own, stream));
    DO(cuStreamWaitEvent(stream, own, 0));
    DO(cuEventDestroy_v2(own));
    DO(cuEventDestroy_v2(event));
    WANT(INVALID_HANDLE, cuEventQuery(event));
    open_gate(memory, 3);
    DO(cuStreamSynchronize(stream));
    DO(cuIpcCloseMemHandle(memory));
    DO(cuStreamDestroy_v2(stream));
}

static void exporter(int peer) {
    CUdeviceptr memory;
    CUevent event, plain, same;
    CUstream stream, behind;
    Handle handles[2];
    char word[8];
    start();
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuStreamCreate(&behind, NON_BLOCKING));
    DO(cuMemAlloc_v2(&memory, 1 << 20));
    open_gate(memory, 0);
    WANT(INVALID_VALUE, cuEventCreate(&event, SHARED));
    DO(cuEventCreate(&plain, NO_TIMING));
    WANT(INVALID_HANDLE, cuIpcGetEventHandle(&handles[1], plain));
    DO(cuEventCreate(&event, NO_TIMING | SHARED));
    DO(cuEventQuery(event));
    WANT(INVALID_VALUE, cuIpcGetEventHandle(NULL, event));
    DO(cuIpcGetMemHandle(&handles[0], memory));
    DO(cuIpcGetEventHandle(&handles[1], event));
    WANT(INVALID_CONTEXT, cuIpcOpenEventHandle(&same, handles[1]));

    close_gate(stream, memory, 1);
    DO(cuMemcpyHtoDAsync_v2(memory + 8, "exported", 8, stream));
    DO(cuEventRecord(event, stream));
    SHOW(write(peer, handles, sizeof handles) == sizeof handles);
    hear(peer);
    open_gate(memory, 1);

    hear(peer);
    WANT(NOT_READY, cuEventQuery(event));
    DO(cuStreamWaitEvent(behind, event, 0));
    DO(cuMemcpyDtoDAsync_v2(memory + 32, memory + 16, 8, behind));
    WANT(NOT_READY, cuStreamQuery(behind));
    open_gate(memory, 2);
    DO(cuEventSynchronize(event));
    DO(cuStreamSynchronize(behind));
    DO(cuMemcpyDtoH_v2(word, memory + 32, 8));
    SHOW(memcmp(word, "imported", 8) == 0);
    DO(cuEventDestroy_v2(event));
    DO(cuEventDestroy_v2(plain));
}

int main(void) {
    int pair[2], status;
    SHOW(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t child = fork();
    if (child == 0) {
        importer(pair[1]);
        return 0;
    }
    exporter(pair[0]);
    SHOW(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
