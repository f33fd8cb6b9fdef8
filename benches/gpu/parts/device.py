#!/usr/bin/env python3
"""device: sharing of the GPU by SMs and by time, and the steps in which a memory pool grows
(probes/device.c).

SMs: the duration of a kernel that fills the GPU, in green contexts of fewer SMs, alone and while
another green context uses the remaining SMs; and under MPS with CUDA_MPS_ACTIVE_THREAD_PERCENTAGE.
Time: the periods in which a process has the GPU and in which it has not, beside another process
without MPS. Pools: the bytes that the default pool has reserved after each allocation.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from suite.part import main
from suite.process import Child, Failed

OTHER_US, PERCENTAGES = 1000, (100, 50, 25)
# A kernel on n of N SMs takes N/n times as long, less SHARE_ERROR_MAX; beside a busy green context
# at most BESIDE_MAX times as long as alone.
SHARE_ERROR_MAX, BESIDE_MAX = 0.05, 1.05


def measure(part):
    seconds = 0.5 if part.quick else 3.0
    alone = told(part, "timeslice", {}, seconds, 0)
    part.row(where="alone", **{key: alone[key] for key in ("loops", "sms", "full_us", "slices", "pool")})
    shares(part, alone)
    slices(part, seconds)
    sharings, no_mps = part.site.sharings()
    if no_mps or part.site.is_software:
        part.skip("parts of the SMs under MPS", no_mps or "the device is a software GPU, which has no such percentage")
        return
    for percentage in PERCENTAGES:
        found = told(part, "mps", {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percentage)}, 0.05, alone["loops"])
        part.row(where=f"MPS, {percentage} %", **{key: found[key] for key in ("sms", "full_us")}, shares=found["shares"])


def told(part, sharing, env, seconds, loops):
    site = part.site
    argv = site.probe("device", "--seconds", seconds, "--loops", loops)
    with Child(argv, site.env(sharing, **env)) as child:
        child.wait_until_ready()
        child.begin()
        return child.result(part.patience_s(60.0))


def shares(part, alone):
    for share in alone["shares"]:
        if share["result"] != 0:
            part.row(where="green context", **share)
            continue
        ideal = alone["sms"] / share["sms"]
        row = {"times_full": share["alone_us"] / alone["full_us"], "ideal": ideal, "beside": share["beside_us"] / share["alone_us"]}
        part.row(where="green context", **share, **row)
        # Waves are whole, so the ideal is met only if the kernel's blocks divide evenly.
        part.bound(f"green context of {share['sms']} SMs: beside another context", row["beside"], BESIDE_MAX, "x")
        part.bound(f"green context of {share['sms']} SMs: not faster than its share", ideal * (1 - SHARE_ERROR_MAX), row["times_full"], "x")
    if not any(share["result"] == 0 for share in alone["shares"]):
        part.skip("green contexts", f"results {[share['result'] for share in alone['shares']]}")


def slices(part, seconds):
    site = part.site
    try:
        with Child(site.spinner("--us", OTHER_US), site.env("timeslice")) as other:
            other.wait_until_ready()
            other.begin()
            found = told(part, "timeslice", {}, seconds, 0)
            other.let_end()
    except Failed as error:
        part.skip("time slices", error)
        return
    part.row(where="beside another process", other_us=OTHER_US, **found["slices"])


if __name__ == "__main__":
    sys.exit(main("device", __doc__, measure))
