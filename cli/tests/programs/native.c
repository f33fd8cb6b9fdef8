/* The native methods of Native.java. */
#include "native_work.h"

__attribute__((visibility("default"))) int64_t Java_Native_useCuda(void *environment, void *class) {
    (void)environment;
    (void)class;
    return (int64_t)use_cuda();
}

__attribute__((visibility("default"))) void Java_Native_leaveInFlight(void *environment, void *class) {
    (void)environment;
    (void)class;
    leave_in_flight();
}

__attribute__((visibility("default"))) void Java_Native_finishWork(void *environment, void *class) {
    (void)environment;
    (void)class;
    finish_work();
}
