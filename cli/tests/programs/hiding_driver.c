/* A driver whose resolver returns a function that it does not export, as an unknown driver may. */
#include <string.h>

static int hidden(void) { return 0; }

int cuInit(unsigned flags) { return (int)flags; }
int cuDeviceGetCount(int *count) { return *count = 0; }
int cuLaunchKernel(void) { return 0; }

int cuGetProcAddress_v2(const char *name, void **address, int version, unsigned long flags, int *found) {
    (void)version, (void)flags;
    *address = strcmp(name, "cuInit") == 0 ? (void *)cuInit : (void *)hidden;
    if (found != NULL) *found = 0;
    return 0;
}
