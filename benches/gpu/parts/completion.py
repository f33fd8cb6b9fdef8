#!/usr/bin/env python3
"""completion: how the host learns that work has ended, and what priorities do to a short kernel behind a long one.

Completion (probes/completion.c): events that are queried against words that the GPU writes (cuStreamWriteValue64): how long after
the kernel's own last store the host learns it, what marking and looking cost, and what looking costs a thread that launches;
without and with MPS. Priorities: a short request behind long kernels of another stream of its process, of another process,
and of another client of MPS: with nothing, with stream priorities, with the launch attribute, with CUDA_MPS_CLIENT_PRIORITY.
Clients of MPS come first, as that is the decision wanted.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from suite import stats
from suite.part import main
from suite.process import Child, Failed

LONG_US, SHORT_US, RATE = 5000, 100, 40
ATTRIBUTE, STREAMS = ("--attribute",), ("--priority", "greatest")
# Name, what the short one adds, what the long one adds, of the long one's environment.
MEANS = (
    ("nothing", (), (), {}),
    ("stream priority", STREAMS, ("--priority", "least"), {}),
    ("launch attribute", ATTRIBUTE, (), {}),
    ("client priority", (), (), {"CUDA_MPS_CLIENT_PRIORITY": "1"}),
    ("client and stream priority", STREAMS, ("--priority", "least"), {"CUDA_MPS_CLIENT_PRIORITY": "1"}),
)


def measure(part):
    sharings, no_mps = part.site.sharings()
    if no_mps:
        part.skip("under MPS", no_mps)
    for sharing in sharings:
        try:
            completion(part, sharing)
        except Failed as error:
            part.skip(f"completion, {sharing}", error)
    seconds = max(0.3, min(part.seconds / 40 if part.quick else part.seconds / 4, 5.0))
    alone = latencies(part, "timeslice", (), None, {}, seconds)
    part.row(where="alone", means="nothing", **alone)
    for sharing, where, means in cells(part, sharings):
        priority(part, sharing, where, means, seconds, alone)


def cells(part, sharings):
    """Where and by what means, most wanted first. With --quick what the launch attribute does is seen within one process, and time
    slicing, which knows no priorities, is left out where there is MPS."""
    by_mps = sorted(MEANS, key=lambda means: "client" not in means[0])
    if part.quick:
        by_mps = [means for means in by_mps if means[1] != ATTRIBUTE]
    every = [("mps", "two processes, mps", means) for means in by_mps]
    every += [("timeslice", "two streams of a process", means) for means in MEANS[:3]]
    if "mps" not in sharings or not part.quick:
        every += [("timeslice", "two processes, timeslice", means) for means in MEANS[:3]]
    return [cell for cell in every if cell[0] in sharings]


def completion(part, sharing):
    site = part.site
    with Child(site.probe("completion", "--rounds", 60 if part.quick else 400), site.env(sharing)) as child:
        child.wait_until_ready()
        child.begin()
        told = child.result(60)
    if not told["kernels_compute"]:
        part.skip(f"completion, {sharing}: when it is learnt", "kernels compute nothing on this device: what they store is not seen")
    if not told["write_value_arrives"]:
        part.skip(f"completion, {sharing}: words that the GPU writes",
                  f"cuStreamWriteValue64 gave {told['write_value_result']} and its word was not seen")
    part.row(where=f"completion, {sharing}", **told)


def priority(part, sharing, where, means, seconds, alone):
    name, short, long, env = means
    try:
        if where.startswith("two streams"):
            beside = ("--beside-us", LONG_US) + (("--beside-priority", "least") if long else ())
            found = latencies(part, sharing, (*short, *beside), None, {}, seconds)
        else:
            found = latencies(part, sharing, short, long, env, seconds)
        if not found["requests"]:
            raise Failed("no request was due in so short a time")
    except Failed as error:
        part.skip(f"priority, {where}, {name}", error)
        return
    part.row(where=where, means=name, times_alone=alone["p50_ms"] and found["p50_ms"] / alone["p50_ms"], **found)


def latencies(part, sharing, short, long, env, seconds):
    """Of short requests; `long` is what is added to the process beside, None for none."""
    site, company = part.site, None
    argv = site.probe("pulse", "--us", SHORT_US, "--rate", RATE, "--seconds", seconds, *short)
    with Child(argv, site.env(sharing)) as child:
        child.wait_until_ready()
        try:
            if long is not None:
                company = Child(site.spinner("--us", LONG_US, "--waves", 4, "--depth", 2, *long), site.env(sharing, **env))
                company.wait_until_ready()
                company.begin()
            child.begin()
            told = child.result(seconds + 60)
            if company:
                company.let_end()  # Once its work is done: a client of MPS that is killed in the middle can take others along.
        finally:
            if company:
                company.end()
    return {**stats.latencies(told["latencies_ms"]), "kernel_us": told["kernel_us"]}


if __name__ == "__main__":
    sys.exit(main("completion", __doc__, measure))
