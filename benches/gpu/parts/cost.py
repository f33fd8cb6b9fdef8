#!/usr/bin/env python3
"""cost: what Pillion adds to a launch, to an allocation with its free, and to whole programs.

Per call: the driver's own function and the hooked one, in alternated blocks of one process (probes/launch_cost.c): not preloaded
(the control), preloaded without a daemon, high-priority, best-effort inside its lease. Per program: PyTorch inference and
training, without Pillion and in each class, in alternated rounds, by the time of a request or step.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from suite import stats, torch_jobs
from suite.part import main
from suite.process import Child, Failed
from suite.site import ROOT, attending

HP_NS_MAX = 80.0
HP_PCT_MAX, BE_PCT_MAX = 1.0, 3.0
ROUNDS, ROUNDS_QUICK = 5, 2
# Share of the launches that may have waited at the gate: a median does not see so few.
HELD_MAX = 0.05
# Each state of a process: its class, and whether a best-effort job's leases are gated by a high-priority client.
STATES = (("bare", None), ("unattached", None), ("high-priority", "high-priority"), ("best-effort in lease", "best-effort"))


def measure(part):
    with part.site.daemon("timeslice") as daemon:
        for call in ("launch", "alloc"):
            for state, klass in STATES:
                per_call(part, daemon, call, state, klass)
    try:
        part.site.torch()
    except Failed as error:
        part.skip("whole programs", error)
        return
    for job in torch_jobs.pair_jobs(part):
        end_to_end(part, job)


def per_call(part, daemon, call, state, klass):
    """One row: the median process of some."""
    rounds = [one_process(part, daemon, call, state, klass, index) for index in range(1 if part.quick else ROUNDS)]
    ranked = sorted(rounds, key=lambda outcome: outcome["cost_ns"])
    outcome = ranked[(len(ranked) - 1) // 2]
    costs = [entry["cost_ns"] for entry in ranked]
    if outcome.get("held", 0) > HELD_MAX * outcome["calls_with"]:
        part.skip(f"{call}, {state}", f"{outcome['held']} of {outcome['calls_with']} launches waited at the gate: not inside a lease")
        return
    part.row(call=call, state=state, costs_ns=costs, **outcome)
    if call == "launch" and klass == "high-priority":
        part.bound("ns per launch, high-priority", outcome["cost_ns"], HP_NS_MAX, "ns",
                   spread=(max(costs) - min(costs)) / 2)


def one_process(part, daemon, call, state, klass, index):
    """A process that measures in the state that was meant; that it was in it is checked."""
    site, name = part.site, f"{call}, {state}, {index}"
    argv = site.probe("launch_cost", "--call", call, "--default-stream", "--pairs", 10 if part.quick else 50)
    more = {}
    if klass:
        argv = site.pillion(klass, argv, profile=os.path.join(ROOT, "probes", "tiny.trace"))
        more = {"PILLION_SOCKET": daemon.socket}
    elif state == "unattached":
        more = {"LD_PRELOAD": site.program("libpillion.so"), "PILLION_SOCKET": site.path("nobody.sock")}
    company = []
    try:
        if klass == "best-effort":
            company.append(attending(site, daemon))
        with Child(argv, site.env("timeslice", **more), name) as child:
            child.wait_until_ready()
            child.begin()
            outcome = child.result(60)
            if klass:
                totals = daemon.job(child)["totals"]
                counted = totals["launches" if call == "launch" else "allocations"]
                if call == "launch" and not outcome["calls_with"] <= counted <= outcome["calls_with"] + 100:
                    raise Failed(f"{outcome['calls_with']} launches were made, Pillion counted {counted}")
                outcome["held"] = totals["launches_held"]
            child.let_end()
    finally:
        for other in company:
            other.end()
    hooked = outcome["with_file"] == "libpillion.so"
    if hooked != (state != "bare"):
        raise Failed(f"{state}: the function lies in {outcome['with_file']}")
    return outcome


def end_to_end(part, job):
    """A program's time per request or step, without Pillion and in each class, alternated."""
    site, seconds = part.site, max(1.0, min(part.seconds / 4, 5.0))
    times = {"bare": [], "high-priority": [], "best-effort": []}
    with site.daemon("timeslice") as daemon, attending(site, daemon):
        for round_ in range(ROUNDS_QUICK if part.quick else ROUNDS):
            for state in times if round_ % 2 == 0 else reversed(times):
                if part.left_s < 2 * seconds + 20 and all(times.values()):
                    break
                name = f"{job['name']}-{state}-{round_}"
                klass = None if state == "bare" else state
                with torch_jobs.start(site, job, "timeslice", daemon, klass, name, seconds=seconds) as child:
                    child.wait_until_ready()
                    child.begin()
                    times[state].append(child.result(seconds + 60)["step_ms"])
    bare = stats.median(times["bare"])
    spread_pct = 100 * stats.spread(times["bare"])
    for klass, limit in (("high-priority", HP_PCT_MAX), ("best-effort", BE_PCT_MAX)):
        cost_pct = 100 * (stats.median(times[klass]) / bare - 1)
        part.row(program=job["name"], klass=klass, bare_ms=bare, cost_pct=cost_pct, spread_pct=spread_pct,
                 steps_ms=times)
        part.bound(f"{job['name']}: end to end, {klass}", cost_pct, limit, "%", spread=spread_pct)


if __name__ == "__main__":
    sys.exit(main("cost", __doc__, measure))
