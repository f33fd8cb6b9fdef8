/* told: a service of batches, whose size the library's thread sets, until standard input ends; a
 * request arrives every 10 ms. Prints how often the size was set. */
#include "../../../include/pillion.h"
#include "cuda_min.h"

static atomic_uint told;

static void take(void *data, uint32_t batch) {
    atomic_store((atomic_uint *)data, batch);
    atomic_fetch_add(&told, 1);
}

int main(void) {
    struct work work;
    atomic_uint batch;
    atomic_init(&batch, 4);
    open_door("linked");
    if (pillion_on_batch(0, take, &batch) == 0) return WRONG_RESULT; /* no thread yet */
    work_open(&work, PLAIN_IMAGE);
    if (pillion_batch_range(0, 0, 8, 2) == 0 || pillion_batch_range(0, 2, 8, 2) != 0) return WRONG_RESULT;
    if (pillion_on_batch(0, take, &batch) != 0) return WRONG_RESULT;
    say("ready");
    while (!is_told_to_end()) {
        unsigned size = atomic_load(&batch);
        usleep(10000 * size);
        pillion_request request = pillion_begin(0, 0, size);
        work_launch(&work, NULL);
        CHECK(cu.CtxSynchronize());
        if (pillion_end(request) != 0) return WRONG_RESULT;
    }
    if (pillion_on_batch(0, NULL, NULL) != 0) return WRONG_RESULT;
    printf("told=%u last=%u\n", atomic_load(&told), atomic_load(&batch));
    work_check(&work);
    say_asked();
    return 0;
}
