/* The native method of Native.java. */
#include "cuda_min.h"

__attribute__((visibility("default"))) int64_t Java_Native_useCuda(void *environment, void *class) {
    struct work work;
    (void)environment;
    (void)class;
    open_door("dlsym");
    work_open(&work, PLAIN_IMAGE);
    for (int i = 0; i < 12; i++) work_launch(&work, NULL);
    work_check(&work);
    say_asked();
    return (int64_t)atomic_load(&asked.launches);
}
