/* clean_up kill | killpg | raise | kill-inside | raise-inside | return [BLOCK_NS]: leaves work in
 * flight. On SIGTERM its handler cleans up and ends the program: it restores the default and sends
 * the same signal to the process or its group, or main returns. "inside": the signal may arrive
 * again while it is handled, and interrupts a thread that waits for the GPU. */
#include "cuda_min.h"
#include <poll.h>

static const char *how;
static volatile sig_atomic_t is_told;

static void handle(int signal_number) {
    if (write(1, "cleaned up\n", 11) < 0) _exit(3);
    is_told = 1;
    if (!strcmp(how, "return")) return;
    signal(signal_number, SIG_DFL);
    if (!strcmp(how, "kill") || !strcmp(how, "kill-inside")) kill(getpid(), signal_number);
    if (!strcmp(how, "killpg")) killpg(0, signal_number);
    if (!strncmp(how, "raise", 5)) raise(signal_number);
    if (strstr(how, "inside")) _exit(42);
    if (write(1, "handled\n", 8) < 0) _exit(3);
}

int main(int argc, char **argv) {
    struct work work;
    CUfunction lasting;
    char image[256];
    if (argc != 2 && argc != 3) return 2;
    how = argv[1];
    struct sigaction action = {.sa_handler = handle, .sa_flags = strstr(how, "inside") ? SA_NODEFER : 0};
    if (sigaction(SIGTERM, &action, NULL)) return 4;
    open_door("linked");
    snprintf(image, sizeof image, "softgpu-module 1\nkernel lasting block_ns=%s regs=32 shared=0 compute=0.01 bandwidth=0.01\n",
             argc == 3 ? argv[2] : "300000000");
    work_open(&work, image);
    CHECK(cu.ModuleGetFunction(&lasting, work.module, "lasting"));
    for (int i = 0; i < 2; i++) launch(lasting, 1, NULL, NULL);
    say("ready");
    if (strstr(how, "inside")) cu.CtxSynchronize();
    while (!is_told) poll(NULL, 0, 1000);
    return 7;
}
