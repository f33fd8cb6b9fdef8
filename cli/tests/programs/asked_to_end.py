"""asked_to_end.py default | handler: uses CUDA through ctypes, says "ready", and waits for SIGTERM or SIGINT."""

import ctypes
import os
import signal
import sys
import time

driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
seen = []


def check(result):
    if result != 0:
        raise RuntimeError(f"CUresult {result}")


def handle(number, frame):
    seen.append(signal.Signals(number).name)


# A test that runs in a shell's background has inherited that it is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
if sys.argv[1] == "handler":
    signal.signal(signal.SIGTERM, handle)
check(driver.cuInit(0))
check(driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, signal.getsignal(signal.SIGINT).__name__)
memory = ctypes.c_uint64()
check(driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20)))
try:
    print("ready", flush=True)
    while not seen and os.read(0, 1) != b"":
        pass
except KeyboardInterrupt:
    print("interrupted", flush=True)
    if sys.argv[1] == "default":
        raise
check(driver.cuCtxSynchronize())
check(driver.cuMemFree_v2(memory))
print("finished", seen, flush=True)
