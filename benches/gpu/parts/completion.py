#!/usr/bin/env python3
"""completion: how the host learns that work has ended, and what priorities do to a short kernel
behind a long one.

Completion (probes/completion.c): events that are queried against words that the GPU writes
(cuStreamWriteValue64): how long after the kernel's own last store the host learns it, what marking
and looking cost, and what looking costs a thread that launches; without and with MPS. Priorities: a
short request behind long kernels of another stream of its process, of another process, and of
another client of MPS: with nothing, with stream priorities, with the launch attribute, with
CUDA_MPS_CLIENT_PRIORITY. Clients of MPS come first, as that is the decision wanted.

What follows for pilliond (`[policy] block_priority = "auto"`) goes into GPU-….measured in the
folder of the results, and, where one is named (--state), into the folder in which pilliond looks
for it. README.md says when.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from suite import measured, stats
from suite.part import main
from suite.process import Child, Failed

LONG_US, WAVES, SHORT_US, RATE = 5000, 4, 100, 40
ATTRIBUTE, STREAMS = ("--attribute",), ("--priority", "greatest")
# Name, what the short one adds, what the long one adds, of the long one's environment.
MEANS = (
    ("nothing", (), (), {}),
    ("stream priority", STREAMS, ("--priority", "least"), {}),
    ("launch attribute", ATTRIBUTE, (), {}),
    ("client priority", (), (), {"CUDA_MPS_CLIENT_PRIORITY": "1"}),
    ("client and stream priority", STREAMS, ("--priority", "least"), {"CUDA_MPS_CLIENT_PRIORITY": "1"}),
    ("client priority, launch attribute", ATTRIBUTE, ("--priority", "least"), {"CUDA_MPS_CLIENT_PRIORITY": "1"}),
)
# The means that Pillion gives jobs: the first where the application makes streams, the second where
# it launches into the default stream.
OF_PILLION = ("client and stream priority", "client priority, launch attribute")


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
    among_clients, is_concluded = {}, False
    for sharing, where, means in cells(part, sharings):
        found = priority(part, sharing, where, means, seconds, alone)
        if sharing == "mps" and found:
            among_clients[means[0]] = found
        if not is_concluded and {"nothing", *OF_PILLION} <= set(among_clients):
            conclude(part, alone, among_clients)
            is_concluded = True


def conclude(part, alone, found):
    """Whether block priority works, for pilliond."""
    without_ms, with_ms = found["nothing"]["p50_ms"], max(found[means]["p50_ms"] for means in OF_PILLION)
    works, why = measured.works(alone["p50_ms"], without_ms, with_ms, LONG_US / 1000 / WAVES)
    if works is None:
        part.skip("whether block priority works", why)
        return
    part.row(where="for pilliond", block_priority=works, why=why)
    text = measured.document(part.site.gpu, works, alone["p50_ms"], without_ms, with_ms)
    for folder in filter(None, (part.options.beside, part.options.state)):
        if folder == part.options.state and part.site.is_software:
            part.skip(f"a file in {folder}", "the device is a software GPU, which says of itself whether block priority works")
            continue
        try:
            print(f"  written: {measured.write(folder, part.site.gpu['uuid'], text)}", flush=True)
        except OSError as error:
            part.skip(f"a file in {folder}", error)


def cells(part, sharings):
    """Where and by what means, most wanted first. With --quick what either means does by itself is
    not seen among clients of MPS, and time slicing, which knows no priorities, is left out where
    there is MPS."""
    by_mps = sorted(MEANS, key=lambda means: means[0] not in (*OF_PILLION, "nothing"))
    if part.quick:
        by_mps = by_mps[:4]
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
        return None
    part.row(where=where, means=name, times_alone=alone["p50_ms"] and found["p50_ms"] / alone["p50_ms"], **found)
    return found


def latencies(part, sharing, short, long, env, seconds):
    """Of short requests; `long` is what is added to the process beside, None for none."""
    site, company = part.site, None
    argv = site.probe("pulse", "--us", SHORT_US, "--rate", RATE, "--seconds", seconds, *short)
    with Child(argv, site.env(sharing)) as child:
        child.wait_until_ready()
        try:
            if long is not None:
                company = Child(site.spinner("--us", LONG_US, "--waves", WAVES, "--depth", 2, *long), site.env(sharing, **env))
                company.wait_until_ready()
                company.begin()
            child.begin()
            told = child.result(seconds + 60)
            if company:
                # Once its work is done: a client of MPS that is killed in the middle can take
                # others along.
                company.let_end()
        finally:
            if company:
                company.end()
    return {**stats.latencies(told["latencies_ms"]), "kernel_us": told["kernel_us"]}


def options(parser):
    parser.add_argument("--state", metavar="DIR", help="also write GPU-….measured there: where pilliond looks for it (/var/lib/pillion for root's)")


if __name__ == "__main__":
    sys.exit(main("completion", __doc__, measure, options))
