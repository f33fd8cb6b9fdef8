/* confine WHAT COMMAND…: runs a command under a filter for system calls.
 *
 *   container   denies the calls that the usual default profile of container engines denies to
 *               root, too
 *   strict      the same, and newer or rarer calls that a strict profile may not know
 *   no-sockets  no socket can be made
 *   no-threads  no thread can be made */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static const int container[] = {
    SYS_acct, SYS_add_key, SYS_bpf, SYS_clock_adjtime, SYS_clock_settime, SYS_delete_module, SYS_finit_module,
    SYS_get_mempolicy, SYS_init_module, SYS_kcmp, SYS_kexec_file_load, SYS_kexec_load, SYS_keyctl, SYS_mbind, SYS_mount,
    SYS_move_pages, SYS_name_to_handle_at, SYS_open_by_handle_at, SYS_perf_event_open, SYS_personality, SYS_pivot_root,
    SYS_process_vm_readv, SYS_process_vm_writev, SYS_ptrace, SYS_quotactl, SYS_reboot, SYS_request_key, SYS_set_mempolicy,
    SYS_setns, SYS_settimeofday, SYS_swapoff, SYS_swapon, SYS_syslog, SYS_umount2, SYS_unshare, SYS_userfaultfd, SYS_vhangup,
};

static const int strict[] = {
    449 /* futex_waitv */, SYS_memfd_create, 434 /* pidfd_open */, 424 /* pidfd_send_signal */, 438 /* pidfd_getfd */,
    SYS_eventfd2, SYS_timerfd_create, SYS_signalfd4, 425 /* io_uring_setup */, SYS_statx, SYS_getrandom, SYS_membarrier,
    436 /* close_range */, SYS_copy_file_range, SYS_prctl, SYS_tgkill, SYS_sched_setaffinity, SYS_inotify_init1, SYS_mlock,
};

static struct sock_filter program[256];
static unsigned length;

static void add(unsigned short code, unsigned char if_true, unsigned char if_not, unsigned value) {
    program[length++] = (struct sock_filter){code, if_true, if_not, value};
}

static void load(size_t offset) {
    add(BPF_LD | BPF_W | BPF_ABS, 0, 0, (unsigned)offset);
}

static void answer(unsigned error) {
    add(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | error);
}

static void deny(const int *calls, size_t count, unsigned error) {
    for (size_t i = 0; i < count; i++) {
        add(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, (unsigned)calls[i]);
        answer(error);
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return 125;
    const char *what = argv[1];
    /* Without clone3 glibc uses clone, whose flags a filter can read. */
    const int clone3[] = {435}, sockets[] = {SYS_socket};
    load(offsetof(struct seccomp_data, nr));
    deny(clone3, 1, ENOSYS);
    if (strcmp(what, "container") == 0 || strcmp(what, "strict") == 0) deny(container, COUNT(container), EPERM);
    if (strcmp(what, "strict") == 0) deny(strict, COUNT(strict), EPERM);
    if (strcmp(what, "no-sockets") == 0) deny(sockets, 1, EPERM);
    if (strcmp(what, "no-threads") == 0) {
        add(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, SYS_clone);
        load(offsetof(struct seccomp_data, args[0]));
        add(BPF_JMP | BPF_JSET | BPF_K, 0, 1, CLONE_THREAD);
        answer(EAGAIN);
    }
    add(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {(unsigned short)length, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        perror("confine");
        return 125;
    }
    execv(argv[2], argv + 2);
    perror(argv[2]);
    return 126;
}
