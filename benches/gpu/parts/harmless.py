#!/usr/bin/env python3
"""harmless: programs do the same with Pillion as without.

Each program runs three times without Pillion (twice with --quick), then high-priority, best-effort, and once more
high-priority with PyTorch's own profiler counting. Results must be equal to the bit, or, where the runs without Pillion differ
among themselves, no farther outside what they gave than they lie apart. Launches must be those that the profiler counted, and
no program may hang or end otherwise. Programs that are not installed are skipped.
"""

import functools
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from suite import stats, torch_jobs
from suite.part import main
from suite.process import Failed, side_by_side
from suite.site import ROOT, attending

# (name, arguments of net.py or the program's file, environment); those with a star are run with --quick, too.
PROGRAMS = (
    ("*resnet50-inference", {"network": "resnet50", "task": "infer"}, {}),
    ("resnet50-training", {"network": "resnet50", "task": "train"}, {}),
    ("bert-inference", {"network": "bert", "task": "infer"}, {}),
    ("bert-training", {"network": "bert", "task": "train"}, {}),
    ("*gpt-training-amp", {"network": "gpt", "task": "train", "variant": "amp"}, {}),
    ("*compiled", {"network": "mlp", "task": "infer", "variant": "compile"}, {}),
    ("*cuda-graph", {"network": "bert", "task": "infer", "variant": "graph"}, {}),
    ("streams", {"network": "resnet50", "task": "train", "variant": "streams"}, {}),
    ("*loader-workers", {"network": "mlp", "task": "train", "variant": "loader"}, {}),
    ("expandable-segments", {"network": "gpt", "task": "train"}, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    ("cudaMallocAsync", {"network": "gpt", "task": "train"}, {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}),
    ("*nccl", "nccl.py", {}),
    ("triton", "triton_add.py", {}),
    ("*cupy", "cupy_work.py", {}),
    ("*jax", "jax_work.py", {}),
)
STEPS, STEPS_QUICK = 20, 5
# A program that says nothing for so long hangs.
HANGS_S = 120.0
# Runs at a time, and what one is taken to need of the device.
MOST_AT_ONCE, BYTES_MAX = 8, 4 << 30


def measure(part):
    """First what never waits for others, then the best-effort runs, beside a high-priority client that is idle, so that their
    launches need leases. Runs are made several at a time, as what is compared does not depend on time."""
    try:
        part.site.torch()
    except Failed as error:
        part.skip("every program", error)
        return
    if part.site.is_software:
        part.skip("launches against PyTorch's profiler", "CUPTI does not run on this device, which is a software GPU")
    only = part.options.only_program
    wanted = {name.lstrip("*"): (what, env) for name, what, env in PROGRAMS
              if (name.lstrip("*") in only.split(",") if only else name.startswith("*") or not part.quick)}
    runs = {}
    with part.site.daemon("timeslice") as daemon:
        first, last = [], []
        for name, (what, _) in wanted.items():
            first += [(name, None, index) for index in range(2 if part.quick else 3)] + [(name, "high-priority", 0)]
            first += [(name, "counted", 0)] if isinstance(what, dict) and not part.site.is_software else []
            last += [(name, "best-effort", 0)]
        in_turn(part, daemon, first, wanted, runs)
        with attending(part.site, daemon):
            in_turn(part, daemon, last, wanted, runs)
    for name in wanted:
        add(part, name, {key[1:]: run for key, run in runs.items() if key[0] == name})


def in_turn(part, daemon, keys, wanted, runs):
    """Makes some runs, as many at a time as there is room for; what came of each, or `Failed`."""
    room = min(len(os.sched_getaffinity(0)) // 2, part.site.gpu["memory_bytes"] // BYTES_MAX)
    calls = {key: functools.partial(once, part, daemon, key[0], *wanted[key[0]], *key[1:]) for key in keys}
    runs.update(side_by_side(min(MOST_AT_ONCE, room), calls))


def add(part, name, runs):
    """What came of a program."""
    failed = [run for run in runs.values() if isinstance(run, Failed)]
    absent = [run["not_installed"] for run in runs.values() if not isinstance(run, Failed) and "not_installed" in run]
    if absent:
        part.skip(name, absent[0])
        return
    part.bound(f"{name}: runs that do not end as they should", len(failed), 0, "runs", of_hardware=False)
    if failed:
        part.row(program=name, failed=[str(error) for error in failed])
        return
    row = judged(part, runs)
    part.row(program=name, **row)
    part.bound(f"{name}: results that differ", row["differs"], 0, "runs")
    if "launches_profiled" in row:
        part.bound(f"{name}: launches not as profiled", abs(row["launches_counted"] - row["launches_profiled"]), 0)


def judged(part, runs):
    """A program's runs, compared."""
    bare = [run for (role, _), run in runs.items() if role is None]
    hp, be = runs["high-priority", 0], runs["best-effort", 0]
    is_equal = len({run["digest"] for run in bare}) == 1
    differs = 0
    for run in (hp, be):
        if is_equal:
            differs += run["digest"] != bare[0]["digest"]
        else:
            columns = zip(run["values"], *(other["values"] for other in bare))
            differs += not all(stats.is_within_runs(value, others) for value, *others in columns)
    row = {"bare_runs_equal": is_equal, "differs": differs, "reserved_bytes": hp.get("reserved_bytes")}
    for name, run in (("hp", hp), ("be", be)):
        for key in ("launches", "graph_launches", "allocated_bytes", "launches_held", "bypasses", "panics_caught"):
            row[f"{key}_{name}"] = run["totals"][key]
        row[f"held_bytes_{name}"] = run["held_bytes"]
    if ("counted", 0) in runs:
        counted = runs["counted", 0]
        row["launches_counted"] = counted["totals"]["launches"]
        row["launches_profiled"] = counted["launches_profiled"]
        row["graph_launches_counted"] = counted["totals"]["graph_launches"]
        row["graph_launches_profiled"] = counted["graph_launches_profiled"]
    return row


def once(part, daemon, name, what, env, role, index):
    """One run, and what Pillion counted of it."""
    site, title = part.site, f"{name}, {role or 'bare'}, {index}"
    klass = "high-priority" if role == "counted" else role
    argv = None if isinstance(what, dict) else [site.python, os.path.join(ROOT, "programs", what)]
    fields = {}
    if argv is None:
        fields = {**what, "steps": STEPS_QUICK if part.quick else STEPS, "size": "tiny" if site.is_software else "small"}
        fields["count"] = role == "counted" or None
    with torch_jobs.start(site, fields, "timeslice", daemon, klass, title, env=env, argv=argv) as child:
        told = child.result(HANGS_S)
        if klass and "not_installed" not in told:
            entry = daemon.job(child)
            told["totals"], told["held_bytes"] = entry["totals"], entry["memory"]["held_bytes"]
        status = child.let_end(HANGS_S)
        if status != 0:
            raise Failed(f"{title} ended with status {status}: {child.said()}")
    return told


def more(parser):
    parser.add_argument("--only-program", metavar="NAME,...", help="only these of the programs")


if __name__ == "__main__":
    sys.exit(main("harmless", __doc__, measure, more))
