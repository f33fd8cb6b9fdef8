/* priorities: sets the priority of one stream by its attribute, to each level of the device, and
 * launches after each change. Prints the priority by both ways to read it, and the number of
 * levels. */
#include "cuda_min.h"

#define PRIORITY 8

typedef union { char bytes[64]; int priority; } attribute;

CUresult cuCtxGetStreamPriorityRange(int *, int *);
CUresult cuStreamGetPriority(CUstream, int *);
CUresult cuStreamSetAttribute(CUstream, unsigned, const attribute *);
CUresult cuStreamGetAttribute(CUstream, unsigned, attribute *);

int main(void) {
    struct work work;
    CUstream stream;
    int least, greatest;
    open_door("linked");
    work_open(&work, PLAIN_IMAGE);
    CHECK(cuCtxGetStreamPriorityRange(&least, &greatest));
    CHECK(cu.StreamCreate(&stream, 1));
    for (int asked = least; asked >= greatest; asked--) {
        attribute value = {{0}};
        int priority = 1;
        value.priority = asked;
        CHECK(cuStreamSetAttribute(stream, PRIORITY, &value));
        CHECK(cuStreamGetPriority(stream, &priority));
        memset(&value, 0x55, sizeof value);
        CHECK(cuStreamGetAttribute(stream, PRIORITY, &value));
        printf("asked %d: %d %d\n", asked, priority, value.priority);
        /* As many launches as the level's number, so that the counts identify the level. */
        for (int i = 0; i <= least - asked; i++) work_launch(&work, stream);
    }
    attribute beyond = {{0}};
    beyond.priority = greatest - 1;
    printf("beyond: %u\n", cuStreamSetAttribute(stream, PRIORITY, &beyond));
    CHECK(cu.StreamSynchronize(stream));
    work_check(&work);
    printf("levels=%d\n", least - greatest + 1);
    say_asked();
    return 0;
}
