"""ranges.py HOW: twenty ranges by NVIDIA's nvtx, each with a range of another domain or name
inside, with a context and without a kernel."""

import ctypes
import sys

import nvtx

cuda = ctypes.CDLL("libcuda.so.1")
device, context = ctypes.c_int(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device) == 0
domain = nvtx.get_domain("service")
for number in range(20):
    if sys.argv[1] == "annotate":
        with nvtx.annotate(f"forward {number}"), nvtx.annotate("forward", domain="other"):
            pass
    elif sys.argv[1] == "started":
        started = nvtx.start_range("forward")
        nvtx.end_range(started)
    elif sys.argv[1] == "pushed":
        nvtx.push_range("forward", domain="service")
        nvtx.push_range("forward")
        nvtx.pop_range()
        nvtx.pop_range(domain="service")
    else:
        domain.push_range(domain.get_event_attributes("forward"))
        domain.pop_range()
print("served", flush=True)
sys.stdin.read()
