/* A driver of one device whose attributes are 1000 plus their own number. */
#include <stddef.h>
#include <string.h>

static int answer(int *to, int value) {
    *to = value;
    return 0;
}

int cuInit(unsigned flags) { return (int)flags; }
int cuDriverGetVersion(int *version) { return answer(version, 13000); }
int cuDeviceGetCount(int *count) { return answer(count, 1); }
int cuDeviceGet(int *device, int ordinal) { return answer(device, ordinal); }
int cuDeviceGetAttribute(int *value, int attribute, int device) { return answer(value, 1000 + attribute + device); }

int cuDeviceGetName(char *name, int room, int device) {
    (void)device;
    strncpy(name, "numbers", (size_t)room);
    return 0;
}

int cuDeviceGetUuid(char uuid[16], int device) {
    for (int at = 0; at < 16; at++) uuid[at] = (char)('a' + at + device);
    return 0;
}

int cuDeviceTotalMem(size_t *bytes, int device) {
    *bytes = (size_t)5 << (32 + device);
    return 0;
}

int cuGetProcAddress_v2(const char *name, void **address, int version, unsigned long flags, int *found) {
    static const struct { const char *name; void *address; } known[] = {
        {"cuInit", (void *)cuInit},
        {"cuDriverGetVersion", (void *)cuDriverGetVersion},
        {"cuDeviceGetCount", (void *)cuDeviceGetCount},
        {"cuDeviceGet", (void *)cuDeviceGet},
        {"cuDeviceGetAttribute", (void *)cuDeviceGetAttribute},
        {"cuDeviceGetName", (void *)cuDeviceGetName},
        {"cuDeviceGetUuid", (void *)cuDeviceGetUuid},
        {"cuDeviceTotalMem", (void *)cuDeviceTotalMem},
    };
    (void)version, (void)flags;
    *address = NULL;
    for (size_t at = 0; at < sizeof known / sizeof *known; at++)
        if (strcmp(name, known[at].name) == 0) *address = known[at].address;
    if (found != NULL) *found = *address == NULL;
    return *address == NULL ? 500 : 0;
}
