"""Says when requests begin and end, to Pillion's library if it is in the process; else nothing happens.

    import pillion_marks

    with pillion_marks.request(arrived_ns=received_ns, kind=0, batch=8):
        answer = model(batch).cpu()

Times are ns of CLOCK_MONOTONIC, as time.monotonic_ns() gives them on Linux. The functions and their rules are those of
include/pillion.h. As a program it makes 50 requests of its own and says how many of them were marked.
"""

import contextlib
import ctypes


class _Api(ctypes.Structure):
    """`pillion_v1` of include/pillion.h."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("abi", ctypes.c_uint32),
        ("begin", ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32)),
        ("end", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64)),
        ("cancel", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64)),
        ("slo", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint32)),
        ("iteration", ctypes.CFUNCTYPE(ctypes.c_int)),
    ]


def _find():
    process = ctypes.CDLL(None)
    if not hasattr(process, "pillion_api"):
        return None
    process.pillion_api.argtypes = [ctypes.c_uint32]
    process.pillion_api.restype = ctypes.POINTER(_Api)
    table = process.pillion_api(1)
    # An older library's table ends earlier; this module wants all of it.
    if not table or table.contents.size < ctypes.sizeof(_Api):
        return None
    return table.contents


_api = _find()


@contextlib.contextmanager
def request(arrived_ns=0, kind=0, batch=0):
    """A request from here to the end of the block; one that an exception leaves is given up.

    Gives its number, 0 where there are none (no library, no high-priority job, no CUDA context yet).
    """
    number = _api.begin(arrived_ns, kind, batch) if _api else 0
    try:
        yield number
    except BaseException:
        if number:
            _api.cancel(number)
        raise
    if number:
        _api.end(number)


def slo(kind, ns, per_mille=990):
    """Requests of a kind are to take at most so many ns, per_mille of 1000 of them; whether that was taken."""
    return bool(_api) and _api.slo(kind, ns, per_mille) == 0


def iteration():
    """The program has made an iteration (a training step); whether that was counted."""
    return bool(_api) and _api.iteration() == 0


def _main():
    """Clears a buffer on the GPU, 50 times."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        result = getattr(cuda, name)(*arguments)
        if result:
            raise SystemExit(f"{name}: CUresult {result}")

    context, buffer = ctypes.c_void_p(), ctypes.c_uint64()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    words = 1 << 20
    call("cuMemAlloc_v2", ctypes.byref(buffer), ctypes.c_size_t(4 * words))
    marked = 0
    for _ in range(50):
        with request() as number:
            call("cuMemsetD32_v2", buffer, 0, ctypes.c_size_t(words))
            call("cuCtxSynchronize")
        marked += number != 0
    print(f"{marked} of 50 requests marked")


if __name__ == "__main__":
    _main()
