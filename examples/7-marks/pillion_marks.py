"""Marks when requests begin and end, for Pillion's library. Without the library nothing happens.

    import pillion_marks

    with pillion_marks.request(arrived_ns=received_ns, kind=0, batch=8):
        answer = model(batch).cpu()

Times are ns of CLOCK_MONOTONIC, which time.monotonic_ns() returns on Linux. The functions and their
rules are those of include/pillion.h.

Run as a program ([BATCHES [EVERY_US]]), it makes its own requests: one arrives every EVERY_US
microseconds. It works on them in the batches that the daemon wants, and prints how many batches
were marked.
"""

import contextlib
import ctypes
import sys
import time


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
        ("batch_range", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32)),
        ("batch_wanted", ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32)),
        # This would call Python from a thread of the library. Call batch_wanted before each batch
        # instead.
        ("on_batch", ctypes.c_void_p),
    ]


def _find():
    process = ctypes.CDLL(None)
    if not hasattr(process, "pillion_api"):
        return None
    process.pillion_api.argtypes = [ctypes.c_uint32]
    process.pillion_api.restype = ctypes.POINTER(_Api)
    table = process.pillion_api(1)
    return table.contents if table else None


def _has(name):
    """Whether the library has that function. The table of an older library ends before it."""
    field = getattr(_Api, name)
    return bool(_api) and _api.size >= field.offset + field.size


_api = _find()


@contextlib.contextmanager
def request(arrived_ns=0, kind=0, batch=0):
    """Marks a request from here to the end of the block; an exception cancels it.

    Yields the request's number, or 0 without a library, a high-priority job or a CUDA context.
    """
    number = _api.begin(arrived_ns, kind, batch) if _has("begin") else 0
    try:
        yield number
    except BaseException:
        if number:
            _api.cancel(number)
        raise
    if number:
        _api.end(number)


def slo(kind, ns, per_mille=990):
    """Sets a target: of 1000 requests of a kind, per_mille take at most ns. Returns whether it was
    accepted."""
    return _has("slo") and _api.slo(kind, ns, per_mille) == 0


def iteration():
    """Counts an iteration, such as a training step. Returns whether it was counted."""
    return _has("iteration") and _api.iteration() == 0


def batch_range(kind, least, most, step=1):
    """States that requests of a kind can be worked on in batches of least, least + step and so on
    up to most. Returns whether this was accepted."""
    return _has("batch_range") and _api.batch_range(kind, least, most, step) == 0


def batch_wanted(kind, current):
    """Returns the batch that Pillion wants for a kind, or current if it wants none. Call this
    before each batch."""
    return _api.batch_wanted(kind, current) if _has("batch_wanted") else current


# 32-bit words that a request clears.
_WORDS = 1 << 17


def _main(batches=50, every_us=1000):
    """Clears a part of a buffer on the GPU for each batch."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        result = getattr(cuda, name)(*arguments)
        if result:
            raise SystemExit(f"{name}: CUresult {result}")

    context, buffer = ctypes.c_void_p(), ctypes.c_uint64()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    least, most, step, batch = 2, 8, 2, 4
    call("cuMemAlloc_v2", ctypes.byref(buffer), ctypes.c_size_t(4 * most * _WORDS))
    # The target is half a second from the arrival. Within it the daemon may choose the batch, if it
    # has a section [tuner] and the job a target in ms (pillion run --slo 500ms).
    slo(0, 500_000_000)
    batch_range(0, least, most, step)
    marked = 0
    every_ns = every_us * 1000
    first_ns = time.monotonic_ns()
    for _ in range(batches):
        batch = batch_wanted(0, batch)
        # Work on a batch begins once its last request has arrived.
        last_ns = first_ns + (batch - 1) * every_ns
        while (left_ns := last_ns - time.monotonic_ns()) > 0:
            time.sleep(left_ns / 1e9)
        with request(first_ns, 0, batch) as number:
            call("cuMemsetD32_v2", buffer, 0, ctypes.c_size_t(batch * _WORDS))
            call("cuCtxSynchronize")
        marked += number != 0
        first_ns = last_ns + every_ns
    print(f"{marked} of {batches} batches marked, the last one of {batch} requests")


if __name__ == "__main__":
    _main(*map(int, sys.argv[1:]))
