#!/usr/bin/env python3
"""completion: how the host learns that work has ended, and the effect of priorities on a short
kernel behind a long one.

Completion (probes/completion.c): events that the host queries, and values that the GPU writes
(cuStreamWriteValue64). It measures the delay of each after the kernel's own last store, the cost of
marking and of checking, and the cost of checks for a thread that launches; without and with MPS.
Priorities: a short request behind long kernels of another stream of its process, of another
process, and of another client of MPS: with nothing, with stream priorities, with the launch
attribute, with CUDA_MPS_CLIENT_PRIORITY. Clients of MPS are measured first, because the decision
depends on them.

The conclusion for pilliond (`[policy] block_priority = "auto"`) is written to GPU-….measured in the
folder of the results and, with --state, to the folder in which pilliond looks for it. README.md has
the criterion.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from suite import measured, stats
from suite.part import main
from suite.process import Child, Failed

LONG_US, WAVES, SHORT_US, RATE = 5000, 4, 100, 40
ATTRIBUTE, STREAMS = ("--attribute",), ("--priority", "greatest")
# Name, options of the short kernel's process, options and environment of the long one's.
MEANS = (
    ("nothing", (), (), {}),
    ("stream priority", STREAMS, ("--priority", "least"), {}),
    ("launch attribute", ATTRIBUTE, (), {}),
    ("client priority", (), (), {"CUDA_MPS_CLIENT_PRIORITY": "1"}),
    ("client and stream priority", STREAMS, ("--priority", "least"), {"CUDA_MPS_CLIENT_PRIORITY": "1"}),
    ("client priority, launch attribute", ATTRIBUTE, ("--priority", "least"), {"CUDA_MPS_CLIENT_PRIORITY": "1"}),
)
# The means that Pillion uses for jobs: the first if the application creates streams, the second if
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
    """Decide whether block priority works, and write the file for pilliond."""
    without_ms, with_ms = found["nothing"]["p50_ms"], max(found[means]["p50_ms"] for means in OF_PILLION)
    works, why = measured.works(alone["p50_ms"], without_ms, with_ms, LONG_US / 1000 / WAVES)
    if works is None:
        part.skip("whether block priority works", why)
        return
    part.row(where="for pilliond", block_priority=works, why=why)
    text = measured.document(part.site.gpu, works, alone["p50_ms"], without_ms, with_ms)
    for folder in filter(None, (part.options.beside, part.options.state)):
        if folder == part.options.state and part.site.is_software:
            part.skip(f"a file in {folder}", "the device is a software GPU, which itself reports whether block priority works")
            continue
        try:
            print(f"  written: {measured.write(folder, part.site.gpu['uuid'], text)}", flush=True)
        except OSError as error:
            part.skip(f"a file in {folder}", error)


def cells(part, sharings):
    """Places and means, most important first. --quick leaves out the launch attribute alone and the
    client priority alone among clients of MPS, and, if there is MPS, processes under time slicing,
    which has no priorities."""
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
        part.skip(f"completion, {sharing}: delays", "kernels compute nothing on this device, so their stores do not arrive")
    if not told["write_value_arrives"]:
        part.skip(f"completion, {sharing}: values that the GPU writes",
                  f"cuStreamWriteValue64 returned {told['write_value_result']}, and its value did not arrive")
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
    """Measure latencies of short requests. `long` has further options of the process with long
    kernels; None: no such process."""
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
                # It finishes its work first: killing a client of MPS in the middle of its work can
                # end other clients.
                company.let_end()
        finally:
            if company:
                company.end()
    return {**stats.latencies(told["latencies_ms"]), "kernel_us": told["kernel_us"]}


def options(parser):
    parser.add_argument("--state", metavar="DIR", help="also write GPU-….measured to the folder in which pilliond looks for it (/var/lib/pillion for root's)")


if __name__ == "__main__":
    sys.exit(main("completion", __doc__, measure, options))
