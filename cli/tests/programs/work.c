/* work DOOR ROUNDS STATUS: launches every built-in kernel on two streams, with copies both ways;
 * prints the results and exits with STATUS. */
#include "cuda_min.h"

#define SIDE 24

static void multiply(struct work *work, unsigned rounds) {
    CUfunction gemm;
    CUdeviceptr a, b, c;
    float host[SIDE * SIDE], product[SIDE * SIDE];
    size_t bytes = sizeof host;
    CHECK(cu.ModuleGetFunction(&gemm, work->module, "gemm"));
    CHECK(cu.MemAlloc(&a, bytes));
    CHECK(cu.MemAlloc(&b, bytes));
    CHECK(cu.MemAlloc(&c, bytes));
    for (int i = 0; i < SIDE * SIDE; i++) host[i] = (float)(i % 5);
    to_device(a, host, bytes);
    to_device(b, host, bytes);
    for (unsigned round = 0; round < rounds; round++) {
        unsigned side = SIDE;
        void *parameters[] = {&a, &b, &c, &side, &side, &side};
        launch(gemm, 1, NULL, parameters);
    }
    to_host(product, c, bytes);
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            float sum = 0;
            for (int k = 0; k < SIDE; k++) sum += host[i * SIDE + k] * host[k * SIDE + j];
            if (product[i * SIDE + j] != sum) {
                say("wrong product");
                exit(WRONG_RESULT);
            }
        }
    printf("gemm: corner %g\n", (double)product[SIDE * SIDE - 1]);
    CHECK(cu.MemFree(a));
    CHECK(cu.MemFree(b));
    CHECK(cu.MemFree(c));
}

/* Runs fill, add and reduce on their own stream. */
static void sum_up(struct work *work) {
    CUfunction fill, add, reduce;
    CUstream stream;
    CUdeviceptr x, out;
    unsigned n = 1000;
    float value = 3, sum = 0;
    CHECK(cu.StreamCreate(&stream, 1));
    CHECK(cu.ModuleGetFunction(&fill, work->module, "fill"));
    CHECK(cu.ModuleGetFunction(&add, work->module, "add"));
    CHECK(cu.ModuleGetFunction(&reduce, work->module, "reduce"));
    CHECK(cu.MemAlloc(&x, n * sizeof(float)));
    CHECK(cu.MemAlloc(&out, sizeof(float)));
    void *fill_parameters[] = {&x, &value, &n};
    void *add_parameters[] = {&x, &x, &x, &n};
    void *reduce_parameters[] = {&x, &out, &n};
    launch(fill, 4, stream, fill_parameters);
    launch(add, 4, stream, add_parameters);
    launch(reduce, 1, stream, reduce_parameters);
    CHECK(cu.StreamSynchronize(stream));
    to_host(&sum, out, sizeof sum);
    printf("reduce: %g\n", (double)sum);
    if (sum != 6000) exit(WRONG_RESULT);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    unsigned rounds = (unsigned)atoi(argv[2]);
    struct work work;
    open_door(argv[1]);
    work_open(&work, PLAIN_IMAGE);
    for (unsigned round = 0; round < rounds; round++) work_launch(&work, NULL);
    work_check(&work);
    multiply(&work, rounds);
    sum_up(&work);
    CHECK(cu.CtxDestroy(work.context));
    say_asked();
    return atoi(argv[3]);
}
