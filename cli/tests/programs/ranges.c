/* ranges HOW COUNT: a service of COUNT requests, one after the other with a pause after each. HOW:
 *
 *   none      requests are not reported
 *   api       by Pillion's own interface
 *   default   each is an NVTX range of the default domain, by one of NVTX's ways to name a range
 *   domain    the same in the domain "service"
 *
 * A request is three kernels of a millisecond. Ranges of other names and domains surround each
 * request and are inside it. Two modules take turns, as two libraries would. */
#include "cuda_min.h"
#include "nvtx_min.h"

NVTX_MODULE(first)
NVTX_MODULE(second)

typedef struct {
    uint32_t size, abi;
    uint64_t (*begin)(uint64_t, uint32_t, uint32_t);
    int (*end)(uint64_t);
} pillion_v1;

#define IMAGE "softgpu-module 1\nkernel serve block_ns=1000000 regs=32 shared=0 compute=0.01 bandwidth=0.01\n"

static struct work work;
static CUfunction kernel;

static void serve(void) {
    for (int i = 0; i < 3; i++) launch(kernel, 1, NULL, NULL);
    CHECK(cu.CtxSynchronize());
}

/* A push or pop must have returned the value for a process without a tool. */
static void expect_untracked(int level) {
    if (level != NO_PUSH_POP_TRACKING) {
        fprintf(stderr, "level %d\n", level);
        exit(WRONG_RESULT);
    }
}

static void in_default_domain(int i) {
    nvtx_event event = nvtx_named(1, "forward event");
    nvtx_event registered = nvtx_named(3, second_register(NULL, "forward registered"));
    nvtx_event wide = nvtx_named(2, L"forward wide event");
    uint64_t range = 0;
    expect_untracked(first_push_a("another"));
    switch (i % 6) {
    case 0: expect_untracked(first_push_a("forward")); break;
    case 1: expect_untracked(second_push_w(L"forward wide")); break;
    case 2: expect_untracked(first_push_event(&event)); break;
    case 3: expect_untracked(second_push_in(NULL, registered.message ? &registered : &event)); break;
    case 4: expect_untracked(first_push_event(&wide)); break;
    case 5: range = second_start_a("forward started"); break;
    }
    /* A range inside the request is not a request. */
    if (i % 6 != 5) first_push_a("forward inner");
    serve();
    if (i % 6 != 5) {
        expect_untracked(second_pop());
        expect_untracked(first_pop());
    }
    second_end(range);
    expect_untracked(first_pop());
}

static void in_domain(void *service, void *other, int i) {
    nvtx_event request = nvtx_named(1, "request");
    nvtx_event registered = nvtx_named(3, first_register(service, "request"));
    second_push_in(other, &request);
    first_push_a("request");
    expect_untracked(first_push_in(service, i % 2 && registered.message ? &registered : &request));
    first_pop();
    second_pop_in(other);
    serve();
    expect_untracked(second_pop_in(service));
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const char *how = argv[1];
    int count = atoi(argv[2]), taken = first_open() + second_open();
    open_door("linked");
    work_open(&work, IMAGE);
    CHECK(cu.ModuleGetFunction(&kernel, work.module, "serve"));
    void *service = first_create("service"), *other = second_create("other");
    const pillion_v1 *(*get_api)(uint32_t) = (const pillion_v1 *(*)(uint32_t))dlsym(RTLD_DEFAULT, "pillion_api");
    const pillion_v1 *api = get_api != NULL ? get_api(1) : NULL;
    printf("taken=%d\n", taken);
    for (int i = 0; i < count; i++) {
        if (strcmp(how, "default") == 0) in_default_domain(i);
        else if (strcmp(how, "domain") == 0) in_domain(service, other, i);
        else if (strcmp(how, "api") == 0 && api != NULL) {
            uint64_t request = api->begin(0, 0, 1);
            serve();
            if (api->end(request) != 0) return WRONG_RESULT;
        } else serve();
        usleep(5000);
    }
    say("served");
    wait_until_told_to_end();
    work_check(&work);
    say_asked();
    return 0;
}
