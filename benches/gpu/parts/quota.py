#!/usr/bin/env python3
"""quota: a job gets its quota of the GPU's memory and no more, with each kind of allocation.

A best-effort job with a quota allocates in steps until an allocation fails, frees the memory, and
allocates it again: plain, stream-ordered, physical, managed. Then two processes of one job allocate
at the same time, one process is killed while it holds memory, and PyTorch must raise its usual
error, empty its cache and continue.
"""

import contextlib
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from suite.part import main
from suite.process import Child, Failed
from suite.site import ROOT

QUOTA_MIB = 2048
OUT_OF_MEMORY = 2
# The most that a context, the probe's own buffers and the last step take of the quota.
LEFT_MIB_MAX = 1024
BACK_S = 20.0


def measure(part):
    with part.site.daemon("timeslice") as daemon, contextlib.ExitStack() as stack:
        # PyTorch takes seconds to start; it is in a separate job, and the others run meanwhile.
        torch = begun(part, daemon, stack)
        for kind in ("plain", "async", "physical", "managed"):
            try:
                one_way(part, daemon, kind)
            except Failed as error:
                part.row(kind=kind, failed=str(error))
                part.bound(f"{kind}: measurement", 1, 0, "failed", of_hardware=False)
        for what, name in ((two_processes, "two processes"), (killed, "killed")):
            try:
                what(part, daemon)
            except Failed as error:
                part.bound(f"{name}: measurement", 1, 0, "failed", of_hardware=False)
                part.row(kind=name, failed=str(error))
        if torch:
            torch_at_its_quota(part, torch)


def job(part, daemon, argv, name):
    """A best-effort job with the quota."""
    env = part.site.env("timeslice", PILLION_SOCKET=daemon.socket)
    return Child(part.site.pillion("best-effort", argv, memory=f"{QUOTA_MIB}MiB"), env, name)


def one_way(part, daemon, kind):
    with job(part, daemon, part.site.probe("fill", "--kind", kind), kind) as child:
        child.wait_until_ready()
        child.begin()
        told = child.result(60)
        memory = daemon.job(child)["memory"]
        child.let_end()
    mib = told["granted_bytes"] >> 20
    part.row(kind=kind, granted_mib=mib, peak_bytes=memory["peak_bytes"], held_at_end=memory["held_bytes"],
             context_bytes=memory["by_kind"]["context"], **told)
    part.bound(f"{kind}: granted", mib, QUOTA_MIB, "MiB", of_hardware=False)
    part.bound(f"{kind}: granted, at least", mib, QUOTA_MIB - LEFT_MIB_MAX, "MiB", at_least=True, of_hardware=False)
    part.bound(f"{kind}: peak of the account", memory["peak_bytes"] / (1 << 20), QUOTA_MIB, "MiB", of_hardware=False)
    wrong = sum(told[key] != OUT_OF_MEMORY for key in ("refused_with", "refused_again_with"))
    wrong += told["again_bytes"] != told["granted_bytes"]
    wrong += told["seen_total_bytes"] != QUOTA_MIB << 20
    part.bound(f"{kind}: error codes, second fill, reported size", wrong, 0, "wrong", of_hardware=False)


def two_processes(part, daemon):
    """Two processes allocate at the same time: their sum must be within the quota."""
    argv = [sys.executable, os.path.join(ROOT, "programs", "two.py"), *part.site.probe("fill", "--hold")]
    with job(part, daemon, argv, "two processes") as child:
        told = child.result(90)
        memory = daemon.job(child)["memory"]
        child.let_end()
    mib = sum(told["granted_bytes"]) >> 20
    part.row(kind="two processes", granted_mib=mib, each_bytes=told["granted_bytes"], peak_bytes=memory["peak_bytes"])
    part.bound("two processes: granted", mib, QUOTA_MIB, "MiB", of_hardware=False)
    part.bound("two processes: peak of the account", memory["peak_bytes"] / (1 << 20), QUOTA_MIB, "MiB", of_hardware=False)


def killed(part, daemon):
    """A killed process's memory must return to its job's account."""
    with job(part, daemon, part.site.probe("fill", "--hold"), "to be killed") as child:
        child.wait_until_ready()
        child.begin()
        held_mib = child.result(60)["granted_bytes"] >> 20
        os.kill(child.pid, signal.SIGKILL)
        began = time.monotonic()
        while (left := daemon.job(child)["memory"]["held_bytes"]) and time.monotonic() < began + BACK_S:
            time.sleep(0.05)
    part.row(kind="killed", held_mib=held_mib, left_bytes=left, back_after_s=round(time.monotonic() - began, 2))
    part.bound("killed: left in the account", left >> 20, 0, "MiB", of_hardware=False)


def begun(part, daemon, stack):
    """Start PyTorch's program; None if there is no PyTorch."""
    try:
        part.site.torch()
    except Failed as error:
        part.skip("PyTorch at its quota", error)
        return None
    argv = [part.site.python, os.path.join(ROOT, "programs", "at_quota.py")]
    env = part.site.env("timeslice", wheel=True, PILLION_SOCKET=daemon.socket)
    return stack.enter_context(Child(part.site.pillion("best-effort", argv, memory=f"{QUOTA_MIB}MiB"), env, "torch"))


def torch_at_its_quota(part, child):
    try:
        told = child.result(part.patience_s(120.0))
        child.let_end(60)
    except Failed as error:
        told = {"wrong": 1, "failed": str(error)}
    part.bound("PyTorch: continues after its error", told["wrong"], 0, "wrong", of_hardware=False)
    part.row(kind="PyTorch", **told)


if __name__ == "__main__":
    sys.exit(main("quota", __doc__, measure))
