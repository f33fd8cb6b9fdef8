"""Allocates up to the quota, beyond it, and again: prints the memory that PyTorch and NVML report,
and "look" before each line that it reads."""

import ctypes
import re
import sys

import torch

MIB = 1 << 20


nvml = ctypes.CDLL("libnvidia-ml.so.1")
device = ctypes.c_void_p()
assert nvml.nvmlInit_v2() == 0
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0


def look():
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    told = (ctypes.c_ulonglong * 3)()
    assert nvml.nvmlDeviceGetMemoryInfo(device, told) == 0
    print("free", free, "of", total, "by NVML", told[1], "of", told[0], "used", told[2])
    print("look", flush=True)
    sys.stdin.readline()


free, total = torch.cuda.mem_get_info()
properties = torch.cuda.get_device_properties(0)
print("total_mib=%d device_mib=%d" % (total // MIB, properties.total_memory // MIB), flush=True)
look()
held = []
try:
    while True:
        held.append(torch.empty(200 * MIB, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError as error:
    # The text of PyTorch's own allocator, or of its allocator on the driver's pools.
    print("capacity", re.search(r"(?:total capacity of|Device limit +:) ([\d.]+ \w+)", str(error))[1])
print("blocks=%d" % len(held), flush=True)
look()
held = held[:2]
look()
torch.cuda.empty_cache()
look()
held += [torch.empty(200 * MIB, dtype=torch.uint8, device="cuda") for _ in range(5)]
print("again=%d" % len(held), flush=True)
look()
held.clear()
torch.cuda.empty_cache()
look()
