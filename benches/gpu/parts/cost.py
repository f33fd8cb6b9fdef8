#!/usr/bin/env python3
"""cost: the overhead of Pillion per launch, per allocation with its free, and for whole programs.

Per call: the driver's own function and the hooked one, in alternating blocks of one process
(probes/launch_cost.c): not preloaded (the control), preloaded without a daemon, high-priority,
best-effort inside its lease. Per program: PyTorch inference and training. A process without Pillion
and one in each class exist side by side and work in turn, in an order that is reversed every other
round; the cost is the difference in the time of a request or step. A full run repeats this with
several sets of processes.
"""

import contextlib
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from suite import stats, torch_jobs
from suite.part import main
from suite.process import Child, Failed
from suite.site import ROOT, attending

HP_NS_MAX = 80.0
HP_PCT_MAX, BE_PCT_MAX = 1.0, 3.0
# Processes for each call and state.
PROCESSES, PROCESSES_QUICK = 5, 1
# Sets of three processes for each program, rounds of a set, and seconds of a process in a round.
SETS, SETS_QUICK = 2, 1
ROUNDS, ROUNDS_QUICK, ROUND_S, ROUND_QUICK_S = 5, 3, 3.0, 1.0
# The assumed device memory of a program. If all fit, the processes of all programs start side by
# side.
BYTES_MAX = 8 << 30
READY_S, LATE_S = 90.0, 30.0
# Share of the launches that may have waited at the gate: so few do not affect a median.
HELD_MAX = 0.05
# The states of a process, with its class. A best-effort process runs beside a high-priority client,
# so that its launches need leases.
STATES = (("bare", None), ("unattached", None), ("high-priority", "high-priority"), ("best-effort in lease", "best-effort"))
PROGRAM_STATES = {"bare": None, "high-priority": "high-priority", "best-effort": "best-effort"}


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
    jobs, rounds_of = torch_jobs.pair_jobs(part), {}
    part.judged_by(lambda: [judge_end_to_end(part, name, times) for name, times in rounds_of.items()])
    has_room = part.site.gpu["memory_bytes"] >= 3 * BYTES_MAX * len(jobs)
    for index in range(SETS_QUICK if part.quick else SETS):
        for together in [jobs] if part.quick and has_room else [[job] for job in jobs]:
            try:
                end_to_end(part, together, index, rounds_of)
            except Failed as error:
                names = ", ".join(job["name"] for job in together)
                part.bound(f"{names}: measurement", 1, 0, "failed", of_hardware=False)
                part.row(program=names, set=index, failed=str(error))


def per_call(part, daemon, call, state, klass):
    """Measure a call in a state, in some processes; add a row with the median process."""
    rounds = [one_process(part, daemon, call, state, klass, index) for index in range(PROCESSES_QUICK if part.quick else PROCESSES)]
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
    """Measure in one process, and check that it was in the intended state."""
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
                    raise Failed(f"{outcome['calls_with']} launches, but Pillion counted {counted}")
                outcome["held"] = totals["launches_held"]
            child.let_end()
    finally:
        for other in company:
            other.end()
    hooked = outcome["with_file"] == "libpillion.so"
    if hooked != (state != "bare"):
        raise Failed(f"{state}: the function is in {outcome['with_file']}")
    return outcome


def end_to_end(part, jobs, index, rounds_of):
    """Measure the time per request or step of some programs, without Pillion and in each class, in
    turn; add a row for each program and round."""
    seconds = min(part.seconds, ROUND_QUICK_S if part.quick else ROUND_S)
    # The high-priority process is idle while the best-effort one works; because it exists, that one
    # needs leases.
    with part.site.daemon("timeslice") as daemon, contextlib.ExitStack() as stack:
        children = {(job["name"], state): stack.enter_context(torch_jobs.start(
            part.site, job, "timeslice", daemon, klass, f"{job['name']}-{state}-{index}", seconds=seconds))
            for job in jobs for state, klass in PROGRAM_STATES.items()}
        for child in children.values():
            child.wait_until_ready(part.patience_s(READY_S))
        for round_ in range(ROUNDS_QUICK if part.quick else ROUNDS):
            for job in jobs:
                found = {}
                for state in PROGRAM_STATES if round_ % 2 == 0 else reversed(PROGRAM_STATES):
                    child = children[job["name"], state]
                    child.begin()
                    found[state] = child.result(seconds + part.patience_s(LATE_S))["step_ms"]
                times = rounds_of.setdefault(job["name"], {state: [] for state in PROGRAM_STATES})
                for state, step_ms in found.items():
                    times[state].append(step_ms)
                part.row(program=job["name"], set=index, round=round_, step_ms=found)


def judge_end_to_end(part, name, times):
    """Judge the medians of the completed rounds. The spread is that of the rounds without
    Pillion."""
    bare = stats.median(times["bare"])
    spread_pct = 100 * stats.spread(times["bare"])
    for klass, limit in (("high-priority", HP_PCT_MAX), ("best-effort", BE_PCT_MAX)):
        cost_pct = 100 * (stats.median(times[klass]) / bare - 1)
        part.bound(f"{name}: end to end, {klass}, {len(times[klass])} rounds", cost_pct, limit, "%", spread=spread_pct)


if __name__ == "__main__":
    sys.exit(main("cost", __doc__, measure))
