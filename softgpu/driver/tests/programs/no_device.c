/* Without a server there is no device. */
#include "cuda_min.h"

int main(void) {
    int count;
    WANT(NO_DEVICE, cuInit(0));
    WANT(NOT_INITIALIZED, cuDeviceGetCount(&count));
    return 0;
}
