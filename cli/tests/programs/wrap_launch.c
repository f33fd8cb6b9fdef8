/* A library that precedes the driver's launch function, counts calls, and calls the next
 * definition, as interposers do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef int launch(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static int launches;

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra) {
    static launch *next;
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "cuLaunchKernel");
    if (!next || next == cuLaunchKernel) abort();
    launches++;
    return next(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra);
}

__attribute__((destructor)) static void tell(void) {
    if (launches) fprintf(stderr, "wrapped: %d launches\n", launches);
}
