/* Calls of cuBLAS and cuBLASLt, with the result of each printed. Prototypes and numbers are those
 * of cublas_api.h, cublasLt.h and library_types.h.
 *
 *   operators calls        one of each kind, and calls that must be refused
 *   operators random SEED  calls with sizes, types, transpositions and handles of all kinds, good
 *                          and bad
 *   operators open         cuBLAS found by dlopen and dlsym, by handle, by default and by version
 *   operators capture      a product in a captured graph, which runs twice
 *   operators steady N     N products in a stream, each waited for
 *
 * Compiled with -DLINKED it is linked with all three libraries. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *Handle, *Stream;
enum { NONE = 0, TRANSPOSED = 1, R_32F = 0, R_16F = 2, R_16BF = 14, COMPUTE_32F = 68 };

int cuInit(unsigned), cuDeviceGet(int *, int), cuCtxCreate_v2(void **, unsigned, int), cuCtxSynchronize(void);
int cuStreamCreate(Stream *, unsigned), cuStreamSynchronize(Stream);
int cuStreamBeginCapture_v2(Stream, int), cuStreamEndCapture(Stream, void **), cuGraphLaunch(void *, Stream);
int cuGraphInstantiateWithFlags(void **, void *, unsigned long long);
int cublasCreate_v2(Handle *), cublasDestroy_v2(Handle), cublasSetStream_v2(Handle, Stream);
int cublasSgemm_v2(Handle, int, int, int, int, int, const float *, const float *, int, const float *, int, const float *,
                   float *, int);
int cublasDgemmBatched(Handle, int, int, int, int, int, const double *, void *const[], int, void *const[], int,
                       const double *, void *const[], int, int);
int cublasSgemv_v2(Handle, int, int, int, const float *, const float *, int, const float *, int, const float *, float *,
                   int);
int cublasGemmEx(Handle, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
                 const void *, void *, int, int, int, int);
int cublasGemmStridedBatchedEx(Handle, int, int, int, int, int, const void *, const void *, int, int, long long,
                               const void *, int, int, long long, const void *, void *, int, int, long long, int, int,
                               int);
int cublasLtMatmulDescCreate(Handle *, int, int), cublasLtMatmulDescDestroy(Handle);
int cublasLtMatmulDescSetAttribute(Handle, int, const void *, size_t);
int cublasLtMatrixLayoutCreate(Handle *, int, uint64_t, uint64_t, int64_t), cublasLtMatrixLayoutDestroy(Handle);
int cublasLtMatmul(Handle, Handle, const void *, const void *, Handle, const void *, Handle, const void *, const void *,
                   Handle, void *, Handle, const void *, void *, size_t, Stream);

/* Calls that launch: the counts that Pillion must report. */
static int operators, labelled;
static const float one = 1;

static void must(const char *call, int error) {
    if (!error) return;
    printf("%s: %d\n", call, error);
    exit(1);
}
#define MUST(call) must(#call, call)

/* Prints the result of a call; a successful call has launched `launches` kernels. */
static void said(const char *call, int status, int launches) {
    printf("%s: %d\n", call, status);
    operators++;
    labelled += status ? 0 : launches;
}
#define SAY(call) said(#call, call, 1)

static int light(int m, int n, int k, int transposed, Handle operation, Stream stream) {
    Handle a, d;
    MUST(cublasLtMatrixLayoutCreate(&a, R_16F, transposed ? k : m, transposed ? m : k, m));
    MUST(cublasLtMatrixLayoutCreate(&d, R_16F, m, n, m));
    if (operation) cublasLtMatmulDescSetAttribute(operation, 3, &transposed, sizeof transposed);
    int status = cublasLtMatmul(NULL, operation, &one, NULL, a, NULL, NULL, &one, NULL, NULL, NULL, d, NULL, NULL, 0, stream);
    cublasLtMatrixLayoutDestroy(a);
    cublasLtMatrixLayoutDestroy(d);
    return status;
}

static void calls(Handle h) {
    Handle operation;
    MUST(cublasLtMatmulDescCreate(&operation, COMPUTE_32F, R_32F));
    SAY(cublasSgemm_v2(h, NONE, TRANSPOSED, 64, 32, 16, &one, NULL, 64, NULL, 32, &one, NULL, 64));
    SAY(cublasSgemm_v2(h, NONE, TRANSPOSED, 64, 32, 16, &one, NULL, 64, NULL, 32, &one, NULL, 64));
    SAY(cublasDgemmBatched(h, TRANSPOSED, NONE, 8, 8, 8, NULL, NULL, 8, NULL, 8, NULL, NULL, 8, 5));
    SAY(cublasGemmEx(h, NONE, NONE, 128, 64, 96, &one, NULL, R_16F, 128, NULL, R_16F, 96, &one, NULL, R_16F, 128,
                     COMPUTE_32F, -1));
    SAY(cublasGemmStridedBatchedEx(h, TRANSPOSED, TRANSPOSED, 24, 12, 6, &one, NULL, R_16BF, 24, 1, NULL, R_16BF, 12, 1,
                                   &one, NULL, R_16BF, 24, 1, 7, COMPUTE_32F, -1));
    SAY(cublasSgemv_v2(h, TRANSPOSED, 100, 50, &one, NULL, 100, NULL, 1, &one, NULL, 1));
    SAY(light(48, 40, 56, 1, operation, NULL));
    SAY(light(48, 40, 56, 0, operation, NULL));
    /* A product without elements launches nothing. */
    said("of nothing", cublasSgemm_v2(h, NONE, NONE, 0, 32, 16, &one, NULL, 1, NULL, 1, &one, NULL, 1), 0);
    /* Calls that must be refused. */
    SAY(cublasSgemm_v2(NULL, NONE, NONE, 64, 32, 16, &one, NULL, 64, NULL, 32, &one, NULL, 64));
    SAY(cublasSgemm_v2((Handle)8, NONE, NONE, 64, 32, 16, &one, NULL, 64, NULL, 32, &one, NULL, 64));
    SAY(cublasSgemm_v2(h, NONE, 9, 64, 32, 16, &one, NULL, 64, NULL, 32, &one, NULL, 64));
    SAY(cublasSgemm_v2(h, NONE, NONE, -1, 32, 16, &one, NULL, 64, NULL, 32, &one, NULL, 64));
    SAY(cublasGemmEx(h, NONE, NONE, 8, 8, 8, NULL, NULL, 777, 8, NULL, 777, 8, NULL, NULL, 777, 8, COMPUTE_32F, -1));
    SAY(light(48, 40, 56, 0, NULL, NULL));
    SAY(light(48, 40, 56, 0, (Handle)5, NULL));
    MUST(cublasLtMatmulDescDestroy(operation));
}

static unsigned below(unsigned bound) { return (unsigned)rand() % bound; }

static void at_random(Handle good, Stream stream) {
    static const int sizes[] = {-2147483647, -1, 0, 1, 2, 17, 128, 1000};
    static const int types[] = {0, 1, 2, 3, 4, 5, 14, 28, -7, 9999};
    for (int call = 0; call < 300; call++) {
        Handle h = below(8) ? good : (Handle)(uintptr_t)below(3);
        int m = sizes[below(8)], n = sizes[below(8)], k = sizes[below(8)], a = (int)below(4), b = (int)below(4);
        int type = types[below(10)], batch = sizes[below(6)], status;
        switch (below(6)) {
        case 0: status = cublasSgemm_v2(h, a, b, m, n, k, &one, NULL, m, NULL, k, NULL, NULL, m); break;
        case 1: status = cublasDgemmBatched(h, a, b, m, n, k, NULL, NULL, m, NULL, k, NULL, NULL, m, batch); break;
        case 2: status = cublasGemmEx(h, a, b, m, n, k, &one, NULL, type, m, NULL, type, k, &one, NULL, type, m, 68, -1); break;
        case 3:
            status = cublasGemmStridedBatchedEx(h, a, b, m, n, k, &one, NULL, type, m, -1, NULL, type, k, 3, &one, NULL,
                                                type, m, 1LL << 40, batch, COMPUTE_32F, -1);
            break;
        case 4: status = cublasSgemv_v2(h, a, m, n, &one, NULL, m, NULL, 1, &one, NULL, 1); break;
        default: status = light(abs(m) % 2000, abs(n) % 2000, abs(k) % 2000, a & 1, (Handle)(uintptr_t)below(3), stream);
        }
        printf("%d ", status);
        operators++;
    }
    printf("\n");
}

static void opened(void) {
    void *library = dlopen("libcublas.so.13", RTLD_NOW);
    int (*create)(Handle *) = (int (*)(Handle *))dlsym(library, "cublasCreate_v2");
    void *ways[] = {
        dlsym(library, "cublasSgemm_v2"),
        dlsym(RTLD_DEFAULT, "cublasSgemm_v2"),
        dlvsym(library, "cublasSgemm_v2", "libcublas.so.13"),
    };
    printf("library %d, unknown name %d, of another library %d\n", library != NULL,
           dlsym(library, "cublasNoSuch") != NULL, dlsym(library, "cudnnSoftmaxForward") != NULL);
    Handle h;
    MUST(create(&h));
    for (unsigned way = 0; way < sizeof ways / sizeof *ways; way++) {
        if (!ways[way]) {
            printf("way %u: none\n", way);
            continue;
        }
        int (*product)(Handle, int, int, int, int, int, const float *, const float *, int, const float *, int,
                       const float *, float *, int) = ways[way];
        said("by a way", product(h, NONE, NONE, 33, 22, 11, &one, NULL, 33, NULL, 11, &one, NULL, 33), 1);
    }
}

static void captured(Handle h, Stream stream) {
    void *graph, *exec;
    MUST(cublasSgemm_v2(h, NONE, NONE, 64, 64, 64, &one, NULL, 64, NULL, 64, &one, NULL, 64));
    operators++, labelled++;
    MUST(cuStreamBeginCapture_v2(stream, 1));
    SAY(cublasSgemm_v2(h, NONE, NONE, 64, 64, 64, &one, NULL, 64, NULL, 64, &one, NULL, 64));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "calls";
    int device;
    void *context;
    Stream stream;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuCtxCreate_v2(&context, 0, device));
    MUST(cuStreamCreate(&stream, 0));
    if (!strcmp(what, "open")) {
        opened();
    } else {
        Handle h;
        MUST(cublasCreate_v2(&h));
        if (!strcmp(what, "calls")) calls(h);
        MUST(cublasSetStream_v2(h, stream));
        if (!strcmp(what, "random")) {
            srand((unsigned)atoi(argv[2]));
            at_random(h, stream);
        }
        if (!strcmp(what, "capture")) captured(h, stream);
        if (!strcmp(what, "steady")) {
            for (int left = atoi(argv[2]); left > 0; left--) {
                MUST(cublasSgemm_v2(h, NONE, NONE, 256, 256, 64, &one, NULL, 256, NULL, 64, &one, NULL, 256));
                MUST(cuStreamSynchronize(stream));
                operators++, labelled++;
            }
        }
        MUST(cublasDestroy_v2(h));
    }
    MUST(cuCtxSynchronize());
    printf("calls_operator=%d launches_labelled=%d\n", operators, labelled);
    return 0;
}
