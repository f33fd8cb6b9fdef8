#!/usr/bin/env python3
"""device: how the GPU is shared by SMs and by time, and in what steps a memory pool grows
(probes/device.c).

SMs: how long a kernel that fills the GPU takes in green contexts of fewer SMs, alone and while
another green context is busy with the rest; and under MPS with CUDA_MPS_ACTIVE_THREAD_PERCENTAGE.
Time: beside another process without MPS, for how long a process has the GPU and has not. Pools:
what the default one has reserved after allocations.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from suite.part import main
from suite.process import Child, Failed

OTHER_US, PERCENTAGES = 1000, (100, 50, 25)
# A kernel on n of N SMs takes N/n times as long; by how much it may differ, and how much longer it
# may take beside others.
SHARE_ERROR_MAX, BESIDE_MAX = 0.05, 1.05


def measure(part):
    seconds = 0.5 if part.quick else 3.0
    alone = told(part, "timeslice", {}, seconds, 0)
    part.row(where="alone", **{key: alone[key] for key in ("loops", "sms", "full_us", "slices", "pool")})
    shares(part, alone)
    slices(part, seconds)
    sharings, no_mps = part.site.sharings()
    if no_mps or part.site.is_software:
        part.skip("parts of the SMs under MPS", no_mps or "the device is a software GPU, which knows no percentage")
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
        # Waves are whole: only where the kernel's blocks divide evenly is the ideal met.
        part.bound(f"green context of {share['sms']} SMs: beside another one", row["beside"], BESIDE_MAX, "x")
        part.bound(f"green context of {share['sms']} SMs: less than its share", ideal * (1 - SHARE_ERROR_MAX), row["times_full"], "x")
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
