"""Prints the memory that PyTorch's allocator has requested from the driver, at the end of a
program."""

import contextvars
import gc
import os

import torch

LOOKS_MAX = 10_000


def note_process():
    """Adds this process to the file that the test names: files that a process leaves behind have
    its number in their names."""
    with open(os.environ["PILLION_TEST_PIDS"], "a") as pids:
        print(os.getpid(), file=pids)


if "PILLION_TEST_PIDS" in os.environ:
    note_process()
    os.register_at_fork(after_in_child=note_process)


def said(**more):
    let_backward_end()
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    print("reserved_bytes=%d segments=%d" % (
        stats["reserved_bytes.all.allocated"], stats["segment.all.allocated"]))
    for name, value in sorted(more.items()):
        print(name, value)


def let_backward_end():
    """Waits until PyTorch's own thread has released the last backward pass.

    `backward()` returns before that. The pass holds a copy of the caller's context, which is a
    Python object, so that thread takes Python's lock to free it. If the interpreter ends meanwhile,
    Python before 3.14 ends the thread inside a C++ destructor, which ends the process: "terminate
    called without an active exception", with Pillion or without.
    """
    # This thread now has a context, which is the one that remains.
    contextvars.copy_context()
    for _ in range(LOOKS_MAX):
        contexts = [None for kept in gc.get_objects() if type(kept) is contextvars.Context]
        if len(contexts) <= 1:
            return
    raise SystemExit("a backward pass is held although all have returned")
