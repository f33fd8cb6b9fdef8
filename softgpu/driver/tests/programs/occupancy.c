/* Occupancy on a V100: kernel "short" of cuda_min.h, built-in "fill" (32 registers). */
#include "code.h"

static size_t per_thread(int threads) { return threads * 64; }

int main(void) {
    int blocks, threads, grid;
    size_t bytes;
    start();
    CUfunction fill = function("fill");
    DO(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 256, 0));
    SHOW(blocks == 8);
    DO(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, fill, 1024, 0, 1));
    SHOW(blocks == 2);
    DO(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 32, 40 << 10));
    SHOW(blocks == 2);
    WANT(INVALID_VALUE, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, fill, 1024, 0, 2));
    WANT(INVALID_VALUE, cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 0, 0));
    WANT(INVALID_VALUE, cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 1025, 0));
    WANT(INVALID_VALUE, cuOccupancyMaxActiveBlocksPerMultiprocessor(NULL, fill, 32, 0));
    WANT(INVALID_HANDLE, cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, NULL, 32, 0));

    DO(cuOccupancyMaxPotentialBlockSize(&grid, &threads, fill, NULL, 0, 0));
    SHOW(threads == 1024 && grid == 2 * 80);
    DO(cuOccupancyMaxPotentialBlockSize(&grid, &threads, fill, NULL, 0, 100));
    SHOW(threads == 64 && grid == 32 * 80);
    DO(cuOccupancyMaxPotentialBlockSize(&grid, &threads, fill, per_thread, 0, 0));
    SHOW(threads * (grid / 80) * 64 <= 96 << 10 && threads == 768);

    DO(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, fill, 2, 1024));
    SHOW(bytes == 48 << 10);
    DO(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, fill, 1, 32));
    SHOW(bytes == 96 << 10);
    WANT(INVALID_VALUE, cuOccupancyAvailableDynamicSMemPerBlock(&bytes, fill, 3, 1024));

    LaunchConfig config = {1, 1, 1, 512, 1, 1, 0, NULL, NULL, 0};
    DO(cuOccupancyMaxActiveClusters(&blocks, fill, &config));
    SHOW(blocks == 4 * 80);
    DO(cuOccupancyMaxPotentialClusterSize(&blocks, fill, &config));
    SHOW(blocks == 1);
    Attribute cluster = {.id = 4, .value.dim = {2, 1, 1}};
    config.attributes = &cluster;
    config.count = 1;
    WANT(NOT_SUPPORTED, cuOccupancyMaxActiveClusters(&blocks, fill, &config));
    return 0;
}
