#!/usr/bin/env python3
"""demo: `pillion demo` on this GPU, without MPS and, where MPS starts, with it.

The demo replays the kernels of two networks in six phases, with synthetic kernels that it
calibrates on this GPU. Here its result must be that of a user: no wrong result, no launch that the
kernels and Pillion count differently, and with Pillion a 99th percentile within its limit and below
that without Pillion. Of so few requests the 99th percentile is nearly the longest: the spread is
its distance from the 95th, of the job alone.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from suite.part import main
from suite.process import Failed, run

# Limits of the high-priority p99 under Pillion over that alone: those of `share` at 20 %.
SLOWDOWN_MAX = {"mps": 1.10, "timeslice": 1.25}
# Seconds of a phase: in a full run 150 requests, at the demo's 15 a second.
SECONDS, SECONDS_QUICK = 10.0, 3.0


def measure(part):
    sharings, no_mps = part.site.sharings()
    if part.site.is_software:
        sharings, no_mps = ["timeslice"], "the demo looks for MPS's control daemon, and a software GPU has none"
    if no_mps:
        part.skip("the phases under MPS", no_mps)
    document = demo(part, sharings[-1])
    part.row(**{key: document.get(key) for key in ("device", "clock", "hp", "be", "seconds", "calibration", "not_done")})
    phases = document["phases"]
    solo_ms, solo_per_s = phases["hp_solo"]["hp"]["p99_ms"], phases["be_solo"]["be"]["per_s"]
    slowdown, spread = {}, over(phases["hp_solo"]["hp"]["p99_ms"] - phases["hp_solo"]["hp"]["p95_ms"], solo_ms) or 0.0
    for name, phase in phases.items():
        row = {"phase": name, **phase.get("hp", {})}
        if "hp" in phase:
            slowdown[name] = row["slowdown"] = over(phase["hp"]["p99_ms"], solo_ms)
        if "be" in phase:
            row["per_s_be"], row["share"] = phase["be"]["per_s"], over(phase["be"]["per_s"], solo_per_s)
        part.row(**row, counts=document["counts"][name])
    for sharing in sharings:
        mine = slowdown.get(f"{sharing}_pillion")
        why = None if mine else "the demo has no such phase, or no request of it has ended"
        part.bound(f"{sharing}: HP p99 under Pillion", mine, SLOWDOWN_MAX[sharing], "x", spread=spread, why=why)
        part.bound(f"{sharing}: HP p99 below that without Pillion", mine, slowdown.get(sharing) or 0.0, "x", why=why)


def demo(part, sharing):
    """Runs it; its results. It exits with an error if a count or a result is wrong: `Failed`."""
    site = part.site
    seconds = min(part.seconds, SECONDS_QUICK if part.quick else SECONDS)
    argv = [site.program("pillion"), "demo", "--gpu", site.gpu_uuid(sharing), "--seconds", str(seconds), "--json"]
    # It is all that this part runs, so it may take all of its time.
    status, text, errors = run(argv, site.env(sharing), max(5.0, part.left_s - 1.0), check=False)
    part.bound("results and counts agree", abs(status), 0, "status", of_hardware=False, why=errors.strip()[-300:] or None)
    try:
        return json.loads(text)
    except ValueError as error:
        raise Failed(f"pillion demo exited with {status} and without results: {errors.strip()[-300:]}") from error


def over(value, base):
    return None if value is None or not base else value / base


if __name__ == "__main__":
    sys.exit(main("demo", __doc__, measure))
