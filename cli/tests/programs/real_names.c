/* real_names: a program linked with the driver that uses names which Pillion's table lacks, as
 * profilers do. */
#include <stdio.h>

unsigned cuInit(unsigned);
unsigned cuDriverGetVersion(int *);
unsigned cuProfilerStart(void);
unsigned cuProfilerStop(void);
unsigned cuGLGetDevices_v2(unsigned *, int *, unsigned, int);
unsigned cuEGLStreamConsumerDisconnect(void *);

int main(void) {
    int version = 0, device = 0;
    unsigned count = 0;
    printf("cuDriverGetVersion %u\n", cuDriverGetVersion(&version));
    printf("cuProfilerStart %u\n", cuProfilerStart());
    printf("cuInit %u\n", cuInit(0));
    printf("cuProfilerStop %u\n", cuProfilerStop());
    printf("cuGLGetDevices_v2 %u\n", cuGLGetDevices_v2(&count, &device, 1, 1));
    printf("cuEGLStreamConsumerDisconnect %u\n", cuEGLStreamConsumerDisconnect(NULL));
    return 5;
}
