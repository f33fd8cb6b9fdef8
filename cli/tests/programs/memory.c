/* memory FAMILY: uses one family of memory calls in every form, checks the results, and prints its
 * requests. */
#include "cuda_mem.h"

static CUcontext context;
static CUstream stream;

/* ---- device memory ---- */

static void plain(void) {
    CUdeviceptr a, pitched, base;
    CUdeviceptr_v1 low, low_pitched, low_base;
    size_t pitch, length, free_bytes, total;
    unsigned low_pitch, low_length, low_free, low_total;
    ALLOC(cuMemAlloc_v2(&a, 1000), 1000);
    ALLOC(cuMemAlloc(&low, 2000), 2000);
    ALLOC(cuMemAllocPitch_v2(&pitched, &pitch, 300, 7, 4), pitch * 7);
    SHOW(pitch >= 300 && pitch % 4 == 0);
    ALLOC(cuMemAllocPitch(&low_pitched, &low_pitch, 100, 3, 8), low_pitch * 3);
    EXPECT(INVALID_VALUE, cuMemAllocPitch_v2(&pitched, &pitch, 300, 7, 5));
    EXPECT(INVALID_VALUE, cuMemAllocPitch_v2(&pitched, NULL, 300, 7, 4));
    CHECK(cuMemGetAddressRange_v2(&base, &length, a + 999));
    SHOW(base == a && length == 1000);
    CHECK(cuMemGetAddressRange_v2(NULL, NULL, a));
    CHECK(cuMemGetAddressRange(&low_base, &low_length, low + 1));
    SHOW(low_base == low && low_length == 2000);
    EXPECT(NOT_FOUND, cuMemGetAddressRange_v2(&base, &length, a + 100000000));
    CHECK(cuMemGetInfo_v2(&free_bytes, &total));
    CHECK(cuMemGetInfo(&low_free, &low_total));
    SHOW(free_bytes < total && low_free <= low_total);

    /* 32-bit forms of copies and fills. */
    unsigned char host[2000], back[2000];
    pattern(host, sizeof host, 1);
    H2D(cuMemcpyHtoD_v2(a, host, 1000), 1000);
    H2D(cuMemcpyHtoD(low, host, 700), 700);
    H2D(cuMemcpyHtoDAsync(low + 700, host + 700, 300, stream), 300);
    CHECK(cuStreamSynchronize(stream));
    OTHER(cuMemcpyDtoD(low + 1000, low, 500), 500);
    OTHER(cuMemcpyDtoDAsync(low + 1500, low + 500, 500, stream), 500);
    CHECK(cuStreamSynchronize(stream));
    D2H(cuMemcpyDtoH(back, low, 1000), 1000);
    D2H(cuMemcpyDtoHAsync(back + 1000, low + 1000, 1000, stream), 1000);
    CHECK(cuStreamSynchronize(stream));
    SHOW(memcmp(back, host, 1000) == 0 && memcmp(back + 1000, host, 1000) == 0);

    FREE(cuMemFree_v2(a));
    FREE(cuMemFree(low));
    FREE(cuMemFree_v2(pitched));
    FREE(cuMemFree(low_pitched));
    CHECK(cuMemFree_v2(0));
    CHECK(cuMemFree(0));
    EXPECT(INVALID_VALUE, cuMemFree_v2(a));
    EXPECT(INVALID_VALUE, cuMemFree_v2(0x123456));
    EXPECT(INVALID_VALUE, cuMemFree(12345));
}

/* ---- host memory ---- */

static void host_memory(void) {
    void *pinned, *older, *oldest;
    unsigned flags;
    CUdeviceptr device, memory;
    PIN(cuMemHostAlloc(&pinned, 5000, 1), 5000);
    PIN(cuMemAllocHost_v2(&older, 3000), 3000);
    PIN(cuMemAllocHost(&oldest, 100), 100);
    CHECK(cuMemHostGetFlags(&flags, pinned));
    SHOW(flags == 1);
    CHECK(cuMemHostGetDevicePointer_v2(&device, older, 0));
    SHOW(device != 0);
    char *own = malloc(4096);
    PIN(cuMemHostRegister_v2(own, 4096, 0), 4096);
    EXPECT(ALREADY_REGISTERED, cuMemHostRegister_v2(own + 100, 10, 0));
    CHECK(cuMemHostUnregister(own));
    EXPECT(NOT_REGISTERED, cuMemHostUnregister(own));
    PIN(cuMemHostRegister(own, 4000, 1), 4000);
    EXPECT(INVALID_VALUE, cuMemHostRegister_v2(NULL, 10, 0));
    EXPECT(INVALID_VALUE, cuMemHostAlloc(NULL, 10, 0));
    EXPECT(INVALID_VALUE, cuMemHostAlloc(&pinned, 10, 128));

    /* Copy from one to the other through the device. */
    ALLOC(cuMemAlloc_v2(&memory, 3000), 3000);
    pattern((unsigned char *)own, 3000, 9);
    H2D(cuMemcpyHtoDAsync_v2(memory, own, 3000, stream), 3000);
    D2H(cuMemcpyDtoHAsync_v2(older, memory, 3000, stream), 3000);
    CHECK(cuStreamSynchronize(stream));
    SHOW(memcmp(own, older, 3000) == 0);
    FREE(cuMemFree_v2(memory));
    CHECK(cuMemHostUnregister(own));
    CHECK(cuMemFreeHost(pinned));
    CHECK(cuMemFreeHost(older));
    CHECK(cuMemFreeHost(oldest));
    EXPECT(INVALID_VALUE, cuMemFreeHost(older));
    EXPECT(INVALID_VALUE, cuMemHostGetFlags(&flags, own));
    free(own);
}

/* ---- managed memory ---- */

static void managed(void) {
    CUdeviceptr memory, copy;
    Location device = {1, 0}, host = {2, 0};
    int number;
    ALLOC(cuMemAllocManaged(&memory, 100000, 1), 100000);
    ALLOC(cuMemAllocManaged(&copy, 100000, 1), 100000);
    EXPECT(INVALID_VALUE, cuMemAllocManaged(&copy, 10, 7));
    unsigned char *bytes = (unsigned char *)(uintptr_t)memory;
    pattern(bytes, 100000, 3);
    OTHER(cuMemcpyDtoD_v2(copy, memory, 100000), 100000);
    CHECK(cuCtxSynchronize());
    SHOW(memcmp((void *)(uintptr_t)copy, bytes, 100000) == 0);
    SET(cuMemsetD8_v2(copy, 7, 1000), 1000);
    CHECK(cuCtxSynchronize());
    SHOW(((unsigned char *)(uintptr_t)copy)[999] == 7);
    CHECK(cuMemAdvise(memory, 100000, 1, 0));
    CHECK(cuMemAdvise_v2(memory, 50000, 3, device));
    EXPECT(INVALID_VALUE, cuMemAdvise(0x1234, 10, 1, 0));
    EXPECT(INVALID_DEVICE, cuMemAdvise(memory, 10, 3, 17));
    CHECK(cuMemRangeGetAttribute(&number, 4, 1, memory, 100000));
    SHOW(number == 1);
    CHECK(cuMemRangeGetAttribute(&number, 4, 2, memory, 50000));
    SHOW(number == 0);
    CHECK(cuMemRangeGetAttribute(&number, 4, 2, memory, 50001));
    SHOW(number == -2);
    CHECK(cuMemPrefetchAsync(memory, 100000, 0, stream));
    CHECK(cuMemPrefetchAsync_ptsz(memory, 10, 0, stream));
    CHECK(cuMemPrefetchAsync_v2(memory, 100000, host, 0, stream));
    CHECK(cuMemPrefetchAsync_v2_ptsz(memory, 1000, device, 0, stream));
    int preferred, last;
    void *to[] = {&preferred, &last};
    size_t sizes[] = {4, 4}, ranges[] = {1000, 500}, which[] = {0};
    unsigned attributes[] = {2, 4};
    CHECK(cuMemRangeGetAttributes(to, sizes, attributes, 2, memory, 1000));
    SHOW(preferred == 0 && last == 0);
    CHECK(cuMemRangeGetAttribute(&last, 4, 4, memory + 2000, 1000));
    SHOW(last == -1);
    CUdeviceptr starts[] = {memory, copy};
    CHECK(cuMemPrefetchBatchAsync(starts, ranges, 2, &device, which, 1, 0, stream));
    CHECK(cuMemDiscardBatchAsync(starts, ranges, 2, 0, stream));
    CHECK(cuMemDiscardAndPrefetchBatchAsync(starts, ranges, 2, &device, which, 1, 0, stream));
    CHECK(cuStreamSynchronize(stream));
    FREE(cuMemFree_v2(memory));
    FREE(cuMemFree_v2(copy));
    EXPECT(INVALID_VALUE, cuMemFree_v2(memory));
}

/* ---- pools ---- */

static uint64_t pool_state(CUmemoryPool pool, unsigned attribute) {
    uint64_t value = 1;
    CHECK(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static void pools(void) {
    CUmemoryPool standard, current, own;
    CUdeviceptr a, b, c, d;
    Location location = {1, 0};
    PoolProps props = {.type = 1, .location = {1, 0}};
    CHECK(cuDeviceGetDefaultMemPool(&standard, 0));
    CHECK(cuDeviceGetMemPool(&current, 0));
    SHOW(standard == current);
    CHECK(cuMemGetDefaultMemPool(&current, &location, 1));
    SHOW(standard == current);
    CHECK(cuMemPoolCreate(&own, &props));
    SHOW(own != standard);
    ALLOC(cuMemAllocAsync(&a, 1 << 20, stream), 1 << 20);
    ALLOC(cuMemAllocAsync_ptsz(&b, 1000, stream), 1000);
    ALLOC(cuMemAllocFromPoolAsync(&c, 3 << 20, own, stream), 3 << 20);
    ALLOC(cuMemAllocFromPoolAsync_ptsz(&d, 500, own, stream), 500);
    SHOW(pool_state(standard, 7) >= (1 << 20) + 1000);
    SHOW(pool_state(own, 7) >= (3 << 20) + 500 && pool_state(own, 5) >= pool_state(own, 7));
    SET(cuMemsetD8_v2(c, 5, 3 << 20), 3 << 20);
    unsigned char byte = 0;
    D2H(cuMemcpyDtoH_v2(&byte, c + (3 << 20) - 1, 1), 1);
    SHOW(byte == 5);

    /* With a threshold the pool keeps freed memory; without one it releases it. */
    uint64_t keep = UINT64_MAX, none = 0;
    CHECK(cuMemPoolSetAttribute(own, 4, &keep));
    FREE(cuMemFreeAsync(c, stream));
    FREE(cuMemFreeAsync_ptsz(d, stream));
    CHECK(cuStreamSynchronize(stream));
    SHOW(pool_state(own, 7) == 0 && pool_state(own, 8) >= (3 << 20) + 500);
    SHOW(pool_state(own, 5) >= (3 << 20));
    CHECK(cuMemPoolTrimTo(own, 0));
    SHOW(pool_state(own, 5) == 0 && pool_state(own, 6) > 0);
    CHECK(cuMemPoolSetAttribute(own, 6, &none));
    CHECK(cuMemPoolSetAttribute(own, 8, &none));
    SHOW(pool_state(own, 6) == 0 && pool_state(own, 8) == 0);
    EXPECT(INVALID_VALUE, cuMemPoolSetAttribute(own, 8, &keep));
    EXPECT(INVALID_VALUE, cuMemPoolSetAttribute(own, 5, &none));

    /* The current pool serves allocations that name no pool. */
    CHECK(cuDeviceSetMemPool(0, own));
    CHECK(cuMemGetMemPool(&current, &location, 1));
    SHOW(current == own);
    ALLOC(cuMemAllocAsync(&c, 100, stream), 100);
    SHOW(pool_state(own, 7) >= 100);
    CUmemoryPool of;
    CHECK(cuPointerGetAttribute(&of, 17, c));
    SHOW(of == own);
    unsigned access = 0;
    CHECK(cuMemPoolGetAccess(&access, own, &location));
    SHOW(access == 3);

    /* A destroyed pool lives as long as its allocations, and the default pool is current again. */
    CHECK(cuMemPoolDestroy(own));
    CHECK(cuDeviceGetMemPool(&current, 0));
    SHOW(current == standard);
    EXPECT(INVALID_VALUE, cuMemAllocFromPoolAsync(&d, 10, own, stream));
    EXPECT(INVALID_VALUE, cuMemPoolDestroy(own));
    EXPECT(INVALID_VALUE, cuMemPoolDestroy(standard));
    SET(cuMemsetD8_v2(c, 1, 100), 100);
    FREE(cuMemFree_v2(c));
    FREE(cuMemFree_v2(a));
    FREE(cuMemFreeAsync(b, stream));
    EXPECT(INVALID_VALUE, cuMemFreeAsync(b, stream));
    EXPECT(INVALID_VALUE, cuMemFreeAsync(0x7777, stream));
    CHECK(cuStreamSynchronize(stream));
}

/* ---- physical memory ---- */

static void physical(void) {
    AllocationProp prop = {.type = 1, .location = {1, 0}}, back;
    CUhandle first, second, again;
    CUdeviceptr space;
    size_t size;
    /* These calls need no context: the calling thread of a collective library has none. */
    CHECK(cuCtxSetCurrent(NULL));
    CHECK(cuMemGetAllocationGranularity(&size, &prop, 0));
    ALLOC(cuMemCreate(&first, size, &prop, 0), size);
    ALLOC(cuMemCreate(&second, 2 * size, &prop, 0), 2 * size);
    EXPECT(INVALID_VALUE, cuMemCreate(&again, size + 1, &prop, 0));
    EXPECT(INVALID_VALUE, cuMemCreate(NULL, size, &prop, 0));
    EXPECT(INVALID_VALUE, cuMemCreate(&again, size, NULL, 0));
    prop.location.id = 99;
    EXPECT(INVALID_DEVICE, cuMemCreate(&again, size, &prop, 0));
    CHECK(cuMemAddressReserve(&space, 4 * size, 0, 0, 0));
    CHECK(cuMemMap(space, size, 0, first, 0));
    CHECK(cuMemMap(space + size, 2 * size, 0, second, 0));
    EXPECT(INVALID_VALUE, cuMemMap(space, size, 0, second, 0));
    EXPECT(INVALID_VALUE, cuMemMap(space + 4 * size, size, 0, first, 0));
    CHECK(cuCtxSetCurrent(context));
    unsigned char byte = 9;
    EXPECT(INVALID_VALUE, cuMemcpyHtoD_v2(space, &byte, 1));
    AccessDesc access = {{1, 0}, 3};
    unsigned long long flags = 77;
    CHECK(cuMemSetAccess(space, 3 * size, &access, 1));
    CHECK(cuMemGetAccess(&flags, &access.location, space + size));
    SHOW(flags == 3);

    /* One range over two pieces of memory. */
    SET(cuMemsetD32_v2(space + size - 4, 0x01020304, 2), 8);
    unsigned words[2] = {0};
    D2H(cuMemcpyDtoH_v2(words, space + size - 4, 8), 8);
    SHOW(words[0] == 0x01020304 && words[1] == 0x01020304);

    /* Memory lives until its last handle and mapping are released. */
    FREE(cuMemRelease(first));
    EXPECT(INVALID_VALUE, cuMemRelease(first));
    D2H(cuMemcpyDtoH_v2(words, space + size - 4, 4), 4);
    SHOW(words[0] == 0x01020304);
    CHECK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(space + 100)));
    SHOW(again == first);
    CHECK(cuMemGetAllocationPropertiesFromHandle(&back, again));
    SHOW(back.location.type == 1 && back.location.id == 0 && back.type == 1);
    CHECK(cuMemUnmap(space, size));
    EXPECT(INVALID_VALUE, cuMemcpyDtoH_v2(words, space, 4));
    CHECK(cuMemMap(space, size, 0, again, 0));
    CHECK(cuMemSetAccess(space, size, &access, 1));
    D2H(cuMemcpyDtoH_v2(words, space + size - 4, 4), 4);
    SHOW(words[0] == 0x01020304);
    EXPECT(INVALID_VALUE, cuMemAddressFree(space, 4 * size));
    EXPECT(INVALID_VALUE, cuMemUnmap(space + size, size));
    EXPECT(INVALID_VALUE, cuMemFree_v2(space));
    CHECK(cuMemUnmap(space, 3 * size));
    FREE(cuMemRelease(again));
    FREE(cuMemRelease(second));
    CHECK(cuMemAddressFree(space, 4 * size));
    EXPECT(INVALID_VALUE, cuMemAddressFree(space, 4 * size));
}

/* ---- arrays ---- */

static void arrays(void) {
    enum { WIDTH = 20, HEIGHT = 6, DEPTH = 3, BYTES = WIDTH * 4 };
    ArrayDescriptor line = {WIDTH, 0, 0x20, 1}, sheet = {WIDTH, HEIGHT, 3, 1}, told;
    ArrayDescriptor_v1 old_line = {WIDTH, 0, 8, 4}, old_told;
    Array3DDescriptor cube = {WIDTH, HEIGHT, DEPTH, 0x20, 1, 0}, levels = {16, 8, 0, 0x10, 2, 0}, told3;
    Array3DDescriptor_v1 old_cube = {8, 4, 2, 1, 2, 0}, old_told3;
    CUarray a, b, c, d, e, level;
    CUmipmappedArray mipmap;
    ALLOC(cuArrayCreate_v2(&a, &line), BYTES);
    ALLOC(cuArrayCreate(&b, &old_line), BYTES);
    ALLOC(cuArrayCreate_v2(&c, &sheet), BYTES * HEIGHT);
    ALLOC(cuArray3DCreate_v2(&d, &cube), BYTES * HEIGHT * DEPTH);
    ALLOC(cuArray3DCreate(&e, &old_cube), 8 * 4 * 2 * 2);
    ALLOC(cuMipmappedArrayCreate(&mipmap, &levels, 3), (16 * 8 + 8 * 4 + 4 * 2) * 4);
    CHECK(cuArrayGetDescriptor_v2(&told, c));
    SHOW(told.width == WIDTH && told.height == HEIGHT && told.format == 3 && told.channels == 1);
    CHECK(cuArrayGetDescriptor(&old_told, b));
    SHOW(old_told.width == WIDTH && old_told.channels == 4);
    CHECK(cuArray3DGetDescriptor_v2(&told3, d));
    SHOW(told3.depth == DEPTH);
    CHECK(cuArray3DGetDescriptor(&old_told3, e));
    SHOW(old_told3.depth == 2 && old_told3.height == 4);
    CHECK(cuMipmappedArrayGetLevel(&level, mipmap, 1));
    CHECK(cuArray3DGetDescriptor_v2(&told3, level));
    SHOW(told3.width == 8 && told3.height == 4);
    EXPECT(INVALID_VALUE, cuMipmappedArrayGetLevel(&level, mipmap, 3));
    EXPECT(INVALID_VALUE, cuArrayCreate_v2(NULL, &line));
    EXPECT(INVALID_VALUE, cuArrayCreate_v2(&a, NULL));
    line.width = 0;
    CUarray none;
    EXPECT(INVALID_VALUE, cuArrayCreate_v2(&none, &line));

    unsigned char host[BYTES * HEIGHT * DEPTH], back[BYTES * HEIGHT * DEPTH];
    CUdeviceptr memory;
    pattern(host, sizeof host, 2);
    ALLOC(cuMemAlloc_v2(&memory, BYTES), BYTES);
    H2D(cuMemcpyHtoA_v2(a, 0, host, BYTES), BYTES);
    H2D(cuMemcpyHtoA(b, 4, host, BYTES - 4), BYTES - 4);
    H2D(cuMemcpyHtoAAsync_v2(b, 0, host, 4, stream), 4);
    CHECK(cuStreamSynchronize(stream));
    OTHER(cuMemcpyAtoD_v2(memory, a, 8, BYTES - 8), BYTES - 8);
    D2H(cuMemcpyDtoH_v2(back, memory, BYTES - 8), BYTES - 8);
    SHOW(memcmp(back, host + 8, BYTES - 8) == 0);
    OTHER(cuMemcpyDtoA_v2(b, 0, memory, 16), 16);
    OTHER(cuMemcpyAtoA_v2(a, 0, b, 0, 16), 16);
    D2H(cuMemcpyAtoH_v2(back, a, 0, BYTES), BYTES);
    SHOW(memcmp(back, host + 8, 16) == 0 && memcmp(back + 16, host + 16, BYTES - 16) == 0);
    D2H(cuMemcpyAtoHAsync_v2(back, a, 16, 8, stream), 8);
    CHECK(cuStreamSynchronize(stream));
    SHOW(memcmp(back, host + 16, 8) == 0);
    EXPECT(INVALID_VALUE, cuMemcpyAtoH_v2(back, a, 8, BYTES));

    /* A box inside the cube, to the device and back. */
    Copy3D copy = {.src_type = HOST, .src_host = host, .src_pitch = BYTES, .src_height = HEIGHT, .dst_type = ARRAY,
                   .dst_array = d, .width = BYTES, .height = HEIGHT, .depth = DEPTH};
    H2D(cuMemcpy3D_v2(&copy), sizeof host);
    Copy3D part = {.src_type = ARRAY, .src_array = d, .src_x = 8, .src_y = 2, .src_z = 1, .dst_type = HOST, .dst_host = back,
                   .dst_pitch = 40, .dst_height = 4, .width = 40, .height = 4, .depth = 2};
    D2H(cuMemcpy3D_v2(&part), 40 * 4 * 2);
    for (int z = 0; z < 2; z++)
        for (int y = 0; y < 4; y++)
            SHOW(memcmp(back + (z * 4 + y) * 40, host + ((z + 1) * HEIGHT + y + 2) * BYTES + 8, 40) == 0);
    Copy2D up = {.src_type = HOST, .src_host = host, .src_pitch = BYTES, .dst_type = ARRAY, .dst_array = c, .width = BYTES,
                 .height = HEIGHT};
    H2D(cuMemcpy2D_v2(&up), BYTES * HEIGHT);
    Copy2D across = {.src_type = ARRAY, .src_array = c, .src_y = 2, .dst_type = DEVICE, .dst_device = memory,
                     .dst_pitch = BYTES, .width = BYTES, .height = 1};
    OTHER(cuMemcpy2DAsync_v2(&across, stream), BYTES);
    CHECK(cuStreamSynchronize(stream));
    D2H(cuMemcpyDtoH_v2(back, memory, BYTES), BYTES);
    SHOW(memcmp(back, host + 2 * BYTES, BYTES) == 0);
    part.src_z = 2;
    EXPECT(INVALID_VALUE, cuMemcpy3D_v2(&part));

    FREE(cuMemFree_v2(memory));
    FREE(cuArrayDestroy(a));
    FREE(cuArrayDestroy(b));
    FREE(cuArrayDestroy(c));
    FREE(cuArrayDestroy(d));
    FREE(cuArrayDestroy(e));
    EXPECT(INVALID_HANDLE, cuArrayDestroy(e));
    EXPECT(INVALID_HANDLE, cuArrayDestroy(level));
    FREE(cuMipmappedArrayDestroy(mipmap));
    EXPECT(INVALID_HANDLE, cuMipmappedArrayDestroy(mipmap));
}

#include "memory_copies.h"

int main(int count, char **arguments) {
    static const struct { const char *name; void (*run)(void); } families[] = {
        {"plain", plain}, {"host", host_memory}, {"managed", managed}, {"pools", pools}, {"physical", physical},
        {"arrays", arrays}, {"copies", copies}, {"boxes", boxes}, {"batches", batches}, {"sets", sets},
    };
    context = start_context();
    CHECK(cuStreamCreate(&stream, 1));
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (count > 1 && strcmp(arguments[1], families[i].name) == 0) {
            families[i].run();
            CHECK(cuStreamDestroy_v2(stream));
            say_asked();
            return 0;
        }
    return 2;
}
