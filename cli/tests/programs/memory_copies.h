/* The families of memory.c for copies and fills. */
#pragma once

/* Waits for the default streams of both kinds and for `stream`. */
static void wait_all(void) { CHECK(cuCtxSynchronize()); }

/* ---- copies of one dimension ---- */

static void copies(void) {
    enum { BYTES = 100001 };
    static unsigned char host[BYTES], back[BYTES];
    CUdeviceptr a, b;
    unsigned seed = 0;
    ALLOC(cuMemAlloc_v2(&a, BYTES), BYTES);
    ALLOC(cuMemAlloc_v2(&b, BYTES), BYTES);

/* Copies to the device, within it and back, each in one form; the bytes must be the original
 * ones. */
#define ROUND(up, across, down) do { \
        pattern(host, BYTES, ++seed); \
        H2D(up, BYTES); \
        wait_all(); \
        OTHER(across, BYTES); \
        wait_all(); \
        D2H(down, BYTES); \
        wait_all(); \
        SHOW(memcmp(host, back, BYTES) == 0); \
    } while (0)
    ROUND(cuMemcpyHtoD_v2(a, host, BYTES), cuMemcpyDtoD_v2(b, a, BYTES), cuMemcpyDtoH_v2(back, b, BYTES));
    ROUND(cuMemcpyHtoD_v2_ptds(a, host, BYTES), cuMemcpyDtoD_v2_ptds(b, a, BYTES), cuMemcpyDtoH_v2_ptds(back, b, BYTES));
    ROUND(cuMemcpyHtoDAsync_v2(a, host, BYTES, stream), cuMemcpyDtoDAsync_v2(b, a, BYTES, stream),
          cuMemcpyDtoHAsync_v2(back, b, BYTES, stream));
    ROUND(cuMemcpyHtoDAsync_v2_ptsz(a, host, BYTES, NULL), cuMemcpyDtoDAsync_v2_ptsz(b, a, BYTES, NULL),
          cuMemcpyDtoHAsync_v2_ptsz(back, b, BYTES, NULL));
    ROUND(cuMemcpyHtoD_v2(a, host, BYTES), cuMemcpy(b, a, BYTES), cuMemcpyDtoH_v2(back, b, BYTES));
    ROUND(cuMemcpyHtoD_v2(a, host, BYTES), cuMemcpy_ptds(b, a, BYTES), cuMemcpyDtoH_v2(back, b, BYTES));
    ROUND(cuMemcpyHtoD_v2(a, host, BYTES), cuMemcpyAsync(b, a, BYTES, stream), cuMemcpyDtoH_v2(back, b, BYTES));
    ROUND(cuMemcpyHtoD_v2(a, host, BYTES), cuMemcpyAsync_ptsz(b, a, BYTES, NULL), cuMemcpyDtoH_v2(back, b, BYTES));
    ROUND(cuMemcpyHtoD_v2(a, host, BYTES), cuMemcpyPeer(b, context, a, context, BYTES), cuMemcpyDtoH_v2(back, b, BYTES));
    ROUND(cuMemcpyHtoD_v2(a, host, BYTES), cuMemcpyPeer_ptds(b, context, a, context, BYTES), cuMemcpyDtoH_v2(back, b, BYTES));
    ROUND(cuMemcpyHtoD_v2(a, host, BYTES), cuMemcpyPeerAsync(b, context, a, context, BYTES, stream),
          cuMemcpyDtoH_v2(back, b, BYTES));
    ROUND(cuMemcpyHtoD_v2(a, host, BYTES), cuMemcpyPeerAsync_ptsz(b, context, a, context, BYTES, NULL),
          cuMemcpyDtoH_v2(back, b, BYTES));

    EXPECT(INVALID_VALUE, cuMemcpyHtoD_v2(a, host, BYTES + 1));
    EXPECT(INVALID_VALUE, cuMemcpyDtoH_v2(back, a + 1, BYTES));
    EXPECT(INVALID_VALUE, cuMemcpyDtoD_v2(a, 0x1000, 8));
    EXPECT(INVALID_CONTEXT, cuMemcpyPeer(b, (CUcontext)0x77, a, context, 8));
    /* A copy of zero bytes is no copy. */
    CHECK(cuMemcpyHtoD_v2(a, host, 0));
    CHECK(cuMemcpyDtoH_v2(back, a, 0));
    FREE(cuMemFree_v2(a));
    FREE(cuMemFree_v2(b));
}

/* ---- rectangles and boxes ---- */

enum { PITCH = 128, ROWS = 9, SLICES = 4, WIDTH = 77, HEIGHT = 5, DEEP = 3 };

/* Whether a box of `from` arrived in a box of `to`, each at its offset. */
static int arrived(const unsigned char *to, size_t tx, size_t ty, size_t tz, const unsigned char *from, size_t fx, size_t fy,
                   size_t fz, int deep) {
    for (int z = 0; z < deep; z++)
        for (int y = 0; y < HEIGHT; y++)
            if (memcmp(to + ((tz + z) * ROWS + ty + y) * PITCH + tx, from + ((fz + z) * ROWS + fy + y) * PITCH + fx, WIDTH))
                return 0;
    return 1;
}

static void boxes(void) {
    enum { ALL = PITCH * ROWS * SLICES, SHEET = WIDTH * HEIGHT, BOX = SHEET * DEEP };
    static unsigned char host[ALL], back[ALL];
    CUdeviceptr memory;
    CUdeviceptr_v1 low;
    ALLOC(cuMemAlloc_v2(&memory, ALL), ALL);
    ALLOC(cuMemAlloc(&low, ALL), ALL);
    unsigned seed = 0;
    Copy2D up = {.src_x = 3, .src_y = 1, .src_type = HOST, .src_host = host, .src_pitch = PITCH, .dst_x = 11, .dst_y = 2,
                 .dst_type = DEVICE, .dst_device = memory, .dst_pitch = PITCH, .width = WIDTH, .height = HEIGHT};
    Copy2D down = {.src_x = 11, .src_y = 2, .src_type = DEVICE, .src_device = memory, .src_pitch = PITCH, .dst_x = 40,
                   .dst_y = 3, .dst_type = HOST, .dst_host = back, .dst_pitch = PITCH, .width = WIDTH, .height = HEIGHT};
#define ROUND_2D(go_up, go_down) do { \
        pattern(host, ALL, ++seed); \
        memset(back, 0xee, ALL); \
        H2D(go_up, SHEET); \
        wait_all(); \
        D2H(go_down, SHEET); \
        wait_all(); \
        SHOW(arrived(back, 40, 3, 0, host, 3, 1, 0, 1)); \
        SHOW(back[3 * PITCH + 39] == 0xee && back[3 * PITCH + 40 + WIDTH] == 0xee); \
    } while (0)
    ROUND_2D(cuMemcpy2D_v2(&up), cuMemcpy2D_v2(&down));
    ROUND_2D(cuMemcpy2D_v2_ptds(&up), cuMemcpy2D_v2_ptds(&down));
    ROUND_2D(cuMemcpy2DUnaligned_v2(&up), cuMemcpy2DUnaligned_v2(&down));
    ROUND_2D(cuMemcpy2DUnaligned_v2_ptds(&up), cuMemcpy2DUnaligned_v2_ptds(&down));
    ROUND_2D(cuMemcpy2DAsync_v2(&up, stream), cuMemcpy2DAsync_v2(&down, stream));
    ROUND_2D(cuMemcpy2DAsync_v2_ptsz(&up, NULL), cuMemcpy2DAsync_v2_ptsz(&down, NULL));
    Copy2D_v1 old_up = {3, 1, HOST, host, 0, NULL, PITCH, 11, 2, DEVICE, NULL, low, NULL, PITCH, WIDTH, HEIGHT};
    Copy2D_v1 old_down = {11, 2, DEVICE, NULL, low, NULL, PITCH, 40, 3, HOST, back, 0, NULL, PITCH, WIDTH, HEIGHT};
    ROUND_2D(cuMemcpy2D(&old_up), cuMemcpy2D(&old_down));
    ROUND_2D(cuMemcpy2DUnaligned(&old_up), cuMemcpy2DUnaligned(&old_down));
    ROUND_2D(cuMemcpy2DAsync(&old_up, stream), cuMemcpy2DAsync(&old_down, stream));

    Copy3D up3 = {.src_x = 1, .src_y = 2, .src_z = 1, .src_type = HOST, .src_host = host, .src_pitch = PITCH,
                  .src_height = ROWS, .dst_x = 5, .dst_y = 3, .dst_type = DEVICE, .dst_device = memory, .dst_pitch = PITCH,
                  .dst_height = ROWS, .width = WIDTH, .height = HEIGHT, .depth = DEEP};
    Copy3D down3 = {.src_x = 5, .src_y = 3, .src_type = DEVICE, .src_device = memory, .src_pitch = PITCH, .src_height = ROWS,
                    .dst_x = 9, .dst_y = 4, .dst_z = 1, .dst_type = HOST, .dst_host = back, .dst_pitch = PITCH,
                    .dst_height = ROWS, .width = WIDTH, .height = HEIGHT, .depth = DEEP};
#define ROUND_3D(go_up, go_down) do { \
        pattern(host, ALL, ++seed); \
        H2D(go_up, BOX); \
        wait_all(); \
        D2H(go_down, BOX); \
        wait_all(); \
        SHOW(arrived(back, 9, 4, 1, host, 1, 2, 1, DEEP)); \
    } while (0)
    ROUND_3D(cuMemcpy3D_v2(&up3), cuMemcpy3D_v2(&down3));
    ROUND_3D(cuMemcpy3D_v2_ptds(&up3), cuMemcpy3D_v2_ptds(&down3));
    ROUND_3D(cuMemcpy3DAsync_v2(&up3, stream), cuMemcpy3DAsync_v2(&down3, stream));
    ROUND_3D(cuMemcpy3DAsync_v2_ptsz(&up3, NULL), cuMemcpy3DAsync_v2_ptsz(&down3, NULL));
    Copy3D_v1 old_up3 = {1, 2, 1, 0, HOST, host, 0, NULL, NULL, PITCH, ROWS, 5, 3, 0, 0, DEVICE, NULL, low, NULL, NULL, PITCH,
                         ROWS, WIDTH, HEIGHT, DEEP};
    Copy3D_v1 old_down3 = {5, 3, 0, 0, DEVICE, NULL, low, NULL, NULL, PITCH, ROWS, 9, 4, 1, 0, HOST, back, 0, NULL, NULL,
                           PITCH, ROWS, WIDTH, HEIGHT, DEEP};
    ROUND_3D(cuMemcpy3D(&old_up3), cuMemcpy3D(&old_down3));
    ROUND_3D(cuMemcpy3DAsync(&old_up3, stream), cuMemcpy3DAsync(&old_down3, stream));
    up3.src_context = up3.dst_context = down3.src_context = down3.dst_context = context;
    ROUND_3D(cuMemcpy3DPeer(&up3), cuMemcpy3DPeer(&down3));
    ROUND_3D(cuMemcpy3DPeer_ptds(&up3), cuMemcpy3DPeer_ptds(&down3));
    ROUND_3D(cuMemcpy3DPeerAsync(&up3, stream), cuMemcpy3DPeerAsync(&down3, stream));
    ROUND_3D(cuMemcpy3DPeerAsync_ptsz(&up3, NULL), cuMemcpy3DPeerAsync_ptsz(&down3, NULL));

    /* Within the device, and from pinned memory, whose rows the device reads in place. */
    void *pinned;
    PIN(cuMemHostAlloc(&pinned, ALL, 0), ALL);
    pattern(pinned, ALL, 99);
    up.src_host = pinned;
    H2D(cuMemcpy2DAsync_v2(&up, stream), SHEET);
    CHECK(cuStreamSynchronize(stream));
    Copy2D across = {.src_x = 11, .src_y = 2, .src_type = DEVICE, .src_device = memory, .src_pitch = PITCH, .dst_x = 2,
                     .dst_type = UNIFIED, .dst_device = low, .dst_pitch = PITCH, .width = WIDTH, .height = HEIGHT};
    OTHER(cuMemcpy2D_v2(&across), SHEET);
    wait_all();
    down.src_device = low;
    down.src_x = 2;
    down.src_y = 0;
    D2H(cuMemcpy2D_v2(&down), SHEET);
    SHOW(arrived(back, 40, 3, 0, pinned, 3, 1, 0, 1));

    EXPECT(INVALID_VALUE, cuMemcpy2D_v2(NULL));
    EXPECT(INVALID_VALUE, cuMemcpy3D_v2(NULL));
    up.dst_pitch = WIDTH;
    EXPECT(INVALID_VALUE, cuMemcpy2D_v2(&up));
    up.dst_pitch = PITCH;
    up.height = 1000;
    EXPECT(INVALID_VALUE, cuMemcpy2D_v2(&up));
    up.height = 1;
    up.src_type = 9;
    EXPECT(INVALID_VALUE, cuMemcpy2D_v2(&up));
    up.src_type = HOST;
    up.width = 0;
    CHECK(cuMemcpy2D_v2(&up));
    CHECK(cuMemFreeHost(pinned));
    FREE(cuMemFree_v2(memory));
    FREE(cuMemFree(low));
}

/* ---- batches ---- */

static void batches(void) {
    enum { BYTES = 3000, COUNT = 3 };
    unsigned char host[COUNT * BYTES], back[COUNT * BYTES];
    CUdeviceptr memory, to[COUNT], from[COUNT], down[COUNT];
    size_t sizes[COUNT] = {BYTES, 1000, 1}, first = 0, failed = 5, all = BYTES + 1000 + 1;
    CopyAttributes attributes = {.order = 1};
    ALLOC(cuMemAlloc_v2(&memory, COUNT * BYTES), COUNT * BYTES);
    for (int i = 0; i < COUNT; i++) {
        to[i] = memory + i * BYTES;
        from[i] = (CUdeviceptr)(uintptr_t)host + i * BYTES;
        down[i] = (CUdeviceptr)(uintptr_t)back + i * BYTES;
    }
    unsigned seed = 0;
/* Only the driver knows the direction of copies in a batch: Pillion counts them as other, the
 * device by direction. */
#define ROUND_BATCH(go_up, go_down) do { \
        pattern(host, sizeof host, ++seed); \
        CHECK(go_up); \
        wait_all(); \
        CHECK(go_down); \
        wait_all(); \
        asked.copies += 2 * COUNT; \
        asked.other_bytes += 2 * all; \
        for (int i = 0; i < COUNT; i++) SHOW(memcmp(back + i * BYTES, host + i * BYTES, sizes[i]) == 0); \
    } while (0)
    ROUND_BATCH(cuMemcpyBatchAsync(to, from, sizes, COUNT, &attributes, &first, 1, &failed, stream),
                cuMemcpyBatchAsync_ptsz(down, to, sizes, COUNT, &attributes, &first, 1, &failed, NULL));
    ROUND_BATCH(cuMemcpyBatchAsync_v2(to, from, sizes, COUNT, &attributes, &first, 1, stream),
                cuMemcpyBatchAsync_v2_ptsz(down, to, sizes, COUNT, &attributes, &first, 1, NULL));
    EXPECT(INVALID_VALUE, cuMemcpyBatchAsync(to, from, sizes, COUNT, &attributes, &first, 1, NULL, NULL));
    EXPECT(INVALID_VALUE, cuMemcpyBatchAsync_v2(to, from, sizes, 0, &attributes, &first, 1, stream));
    EXPECT(INVALID_VALUE, cuMemcpyBatchAsync_v2(to, from, sizes, COUNT, NULL, &first, 1, stream));
    to[2] = memory + COUNT * BYTES;
    EXPECT(INVALID_VALUE, cuMemcpyBatchAsync(to, from, sizes, COUNT, &attributes, &first, 1, &failed, stream));
    SHOW(failed == 2);
    OTHER(cuMemcpyWithAttributesAsync(memory, from[0], BYTES, &attributes, stream), BYTES);
    OTHER(cuMemcpyWithAttributesAsync_ptsz(memory + BYTES, from[1], BYTES, &attributes, NULL), BYTES);
    wait_all();

    /* Boxes: rows of 40 with room for 50, from the host into an array and back. */
    Array3DDescriptor cube = {40, 4, 2, 1, 2, 0};
    CUarray array;
    ALLOC(cuArray3DCreate_v2(&array, &cube), 40 * 4 * 2 * 2);
    BatchOp boxes[2] = {
        {.src = {1, {(uintptr_t)host, 50, 4, 0}}, .dst = {2, {(uintptr_t)array, 0, 0, 0}}, .width = 40, .height = 4, .depth = 2,
         .order = 1},
        {.src = {1, {(uintptr_t)host, 0, 0, 0}}, .dst = {1, {memory, 0, 0, 0}}, .width = 100, .height = 3, .depth = 1,
         .order = 1},
    };
    BatchOp out = {.src = {2, {(uintptr_t)array, 1, 2, 1}}, .dst = {1, {(uintptr_t)back, 0, 0, 0}}, .width = 30, .height = 2,
                   .depth = 1, .order = 1};
    pattern(host, sizeof host, 77);
    enum { UP = 40 * 4 * 2 * 2 + 300, DOWN = 30 * 2 * 2 };
#define ROUND_BOXES(go_up, go_down) do { \
        memset(back, 0, sizeof back); \
        CHECK(go_up); \
        wait_all(); \
        CHECK(go_down); \
        wait_all(); \
        asked.copies += 3; \
        asked.other_bytes += UP + DOWN; \
        for (int y = 0; y < 2; y++) SHOW(memcmp(back + y * 60, host + ((4 + 2 + y) * 50 + 1) * 2, 60) == 0); \
    } while (0)
    ROUND_BOXES(cuMemcpy3DBatchAsync(2, boxes, &failed, 0, stream), cuMemcpy3DBatchAsync_ptsz(1, &out, NULL, 0, NULL));
    ROUND_BOXES(cuMemcpy3DBatchAsync_v2(2, boxes, 0, stream), cuMemcpy3DBatchAsync_v2_ptsz(1, &out, 0, NULL));
    OTHER(cuMemcpy3DWithAttributesAsync(&boxes[1], 0, stream), 300);
    OTHER(cuMemcpy3DWithAttributesAsync_ptsz(&boxes[1], 0, NULL), 300);
    wait_all();
    boxes[1].dst.words[0] = 0;
    EXPECT(INVALID_VALUE, cuMemcpy3DWithAttributesAsync(&boxes[1], 0, stream));
    EXPECT(INVALID_VALUE, cuMemcpy3DBatchAsync_v2(0, boxes, 0, stream));
    FREE(cuArrayDestroy(array));
    FREE(cuMemFree_v2(memory));
}

/* ---- fills ---- */

static void sets(void) {
    enum { BYTES = 4096, WIDE = 10, HIGH = 6, STEP = 64 };
    unsigned char back[BYTES];
    CUdeviceptr memory;
    CUdeviceptr_v1 low;
    ALLOC(cuMemAlloc_v2(&memory, BYTES), BYTES);
    ALLOC(cuMemAlloc(&low, BYTES), BYTES);

/* Sets 100 values from the start, and nothing after them. */
#define ROUND_SET(type, value, from, call) do { \
        SET(cuMemsetD8_v2(from, 0, BYTES), BYTES); \
        wait_all(); \
        SET(call, 100 * sizeof(type)); \
        wait_all(); \
        D2H(cuMemcpyDtoH_v2(back, from, BYTES), BYTES); \
        for (size_t i = 0; i < 101; i++) SHOW(((type *)back)[i] == (type)(i < 100 ? (value) : 0)); \
    } while (0)
/* Sets WIDE values in each of HIGH rows. */
#define ROUND_SET_2D(type, value, from, call) do { \
        SET(cuMemsetD8_v2(from, 0, BYTES), BYTES); \
        wait_all(); \
        SET(call, WIDE * HIGH * sizeof(type)); \
        wait_all(); \
        D2H(cuMemcpyDtoH_v2(back, from, BYTES), BYTES); \
        for (size_t y = 0; y < HIGH + 1; y++) \
            for (size_t x = 0; x < STEP / sizeof(type); x++) \
                SHOW(((type *)(back + y * STEP))[x] == (type)(y < HIGH && x < WIDE ? (value) : 0)); \
    } while (0)
#define ALL_FORMS(bits, type, value) do { \
        ROUND_SET(type, value, memory, cuMemsetD##bits##_v2(memory, value, 100)); \
        ROUND_SET(type, value, memory, cuMemsetD##bits##_v2_ptds(memory, value, 100)); \
        ROUND_SET(type, value, memory, cuMemsetD##bits##Async(memory, value, 100, stream)); \
        ROUND_SET(type, value, memory, cuMemsetD##bits##Async_ptsz(memory, value, 100, NULL)); \
        ROUND_SET(type, value, low, cuMemsetD##bits(low, value, 100)); \
        ROUND_SET_2D(type, value, memory, cuMemsetD2D##bits##_v2(memory, STEP, value, WIDE, HIGH)); \
        ROUND_SET_2D(type, value, memory, cuMemsetD2D##bits##_v2_ptds(memory, STEP, value, WIDE, HIGH)); \
        ROUND_SET_2D(type, value, memory, cuMemsetD2D##bits##Async(memory, STEP, value, WIDE, HIGH, stream)); \
        ROUND_SET_2D(type, value, memory, cuMemsetD2D##bits##Async_ptsz(memory, STEP, value, WIDE, HIGH, NULL)); \
        ROUND_SET_2D(type, value, low, cuMemsetD2D##bits(low, STEP, value, WIDE, HIGH)); \
    } while (0)
    ALL_FORMS(8, unsigned char, 0xa5);
    ALL_FORMS(16, unsigned short, 0xa55a);
    ALL_FORMS(32, unsigned, 0xdeadbeef);

    EXPECT(INVALID_VALUE, cuMemsetD32_v2(memory + 2, 1, 1));
    EXPECT(INVALID_VALUE, cuMemsetD8_v2(memory, 1, BYTES + 1));
    EXPECT(INVALID_VALUE, cuMemsetD8_v2(0, 1, 1));
    EXPECT(INVALID_VALUE, cuMemsetD2D8_v2(memory, WIDE - 1, 1, WIDE, 2));
    EXPECT(INVALID_VALUE, cuMemsetD2D8_v2(memory, STEP, 1, WIDE, 1000));
    FREE(cuMemFree_v2(memory));
    FREE(cuMemFree(low));
}
