/* Two processes share memory: one by an IPC handle, one by a file descriptor. Each reads the
 * other's writes, and memory lives until the last process has released it. */
#include "cuda_min.h"
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct { char bytes[64]; } IpcHandle;
typedef struct { unsigned type; int id; } Location;
typedef struct { unsigned type, handle_types; Location location; void *win32; char flags[8]; } AllocationProp;
typedef struct { Location location; unsigned flags; } AccessDesc;

CUresult cuIpcGetMemHandle(IpcHandle *, CUdeviceptr);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *, IpcHandle, unsigned);
CUresult cuIpcCloseMemHandle(CUdeviceptr);
CUresult cuMemCreate(uint64_t *, size_t, const AllocationProp *, unsigned long long);
CUresult cuMemRelease(uint64_t);
CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemAddressFree(CUdeviceptr, size_t);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, uint64_t, unsigned long long);
CUresult cuMemUnmap(CUdeviceptr, size_t);
CUresult cuMemSetAccess(CUdeviceptr, size_t, const AccessDesc *, size_t);
CUresult cuMemExportToShareableHandle(void *, uint64_t, unsigned, unsigned long long);
CUresult cuMemImportFromShareableHandle(uint64_t *, void *, unsigned);

enum { BYTES = 1 << 20, PIECE = 2 << 20 };

static const AccessDesc READ_WRITE = {{1, 0}, 3};

static void send_all(int to, IpcHandle *handle, int fd) {
    char control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {handle, sizeof *handle};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    SHOW(sendmsg(to, &message, 0) == sizeof *handle);
}

static int receive_all(int from, IpcHandle *handle) {
    int fd;
    char control[CMSG_SPACE(sizeof fd)];
    struct iovec part = {handle, sizeof *handle};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    SHOW(recvmsg(from, &message, 0) == sizeof *handle);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static CUdeviceptr mapped(uint64_t handle) {
    CUdeviceptr space;
    DO(cuMemAddressReserve(&space, PIECE, 0, 0, 0));
    DO(cuMemMap(space, PIECE, 0, handle, 0));
    DO(cuMemSetAccess(space, PIECE, &READ_WRITE, 1));
    return space;
}

static void importer(int peer) {
    IpcHandle handle;
    CUdeviceptr shared, twice;
    uint64_t physical;
    char byte, word[8];
    int fd = receive_all(peer, &handle);
    start();
    WANT(INVALID_VALUE, cuIpcOpenMemHandle_v2(&shared, handle, 0));
    DO(cuIpcOpenMemHandle_v2(&shared, handle, 1));
    DO(cuIpcOpenMemHandle_v2(&twice, handle, 1));
    SHOW(shared == twice);
    WANT(INVALID_VALUE, cuMemFree_v2(shared));
    DO(cuMemcpyDtoH_v2(word, shared + BYTES - 8, 8));
    SHOW(memcmp(word, "exported", 8) == 0);
    DO(cuMemcpyHtoD_v2(shared, "imported", 8));
    DO(cuIpcCloseMemHandle(shared));
    DO(cuMemcpyDtoH_v2(word, shared, 8));
    DO(cuIpcCloseMemHandle(shared));
    WANT(INVALID_VALUE, cuIpcCloseMemHandle(shared));
    memset(handle.bytes + 8, 0x55, 8);
    WANT(INVALID_HANDLE, cuIpcOpenMemHandle_v2(&shared, handle, 1));

    WANT(INVALID_VALUE, cuMemImportFromShareableHandle(&physical, (void *)(intptr_t)99, 1));
    DO(cuMemImportFromShareableHandle(&physical, (void *)(intptr_t)fd, 1));
    close(fd);
    CUdeviceptr space = mapped(physical);
    DO(cuMemRelease(physical));
    DO(cuMemcpyDtoH_v2(word, space, 8));
    SHOW(memcmp(word, "physical", 8) == 0);

    /* The exporter releases the memory; the mapping here stays. */
    size_t free_before, free_after, total;
    SHOW(write(peer, "r", 1) == 1 && read(peer, &byte, 1) == 1);
    DO(cuMemcpyDtoH_v2(word, space, 8));
    SHOW(memcmp(word, "physical", 8) == 0);
    DO(cuMemGetInfo_v2(&free_before, &total));
    DO(cuMemUnmap(space, PIECE));
    DO(cuMemGetInfo_v2(&free_after, &total));
    SHOW(free_after == free_before + PIECE);
    DO(cuMemAddressFree(space, PIECE));
}

static void exporter(int peer) {
    CUdeviceptr memory, same;
    IpcHandle handle;
    uint64_t physical;
    char byte, word[8];
    int fd = -1;
    AllocationProp prop = {.type = 1, .handle_types = 1, .location = {1, 0}};
    start();
    DO(cuMemAlloc_v2(&memory, BYTES));
    DO(cuMemcpyHtoD_v2(memory + BYTES - 8, "exported", 8));
    DO(cuIpcGetMemHandle(&handle, memory + 100));
    WANT(INVALID_CONTEXT, cuIpcOpenMemHandle_v2(&same, handle, 1));
    WANT(INVALID_VALUE, cuIpcGetMemHandle(&handle, 77));
    WANT(INVALID_VALUE, cuIpcGetMemHandle(NULL, memory));
    DO(cuMemCreate(&physical, PIECE, &prop, 0));
    CUdeviceptr space = mapped(physical);
    DO(cuMemcpyHtoD_v2(space, "physical", 8));
    DO(cuMemExportToShareableHandle(&fd, physical, 1, 0));
    send_all(peer, &handle, fd);
    close(fd);
    SHOW(read(peer, &byte, 1) == 1);
    DO(cuMemcpyDtoH_v2(word, memory, 8));
    SHOW(memcmp(word, "imported", 8) == 0);
    DO(cuMemUnmap(space, PIECE));
    DO(cuMemRelease(physical));
    DO(cuMemAddressFree(space, PIECE));
    DO(cuMemFree_v2(memory));
    SHOW(write(peer, "g", 1) == 1);
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
