#!/usr/bin/env python3
"""harmless: programs behave the same with Pillion as without it.

Each program runs twice without Pillion, high-priority with PyTorch's own profiler counting, and
best-effort beside a high-priority client (in a full run three times without, and once more
high-priority without the profiler). PyTorch selects algorithms whose results are bit-identical, and
results must be equal to the bit. If any differ, three more runs without Pillion are made. If runs
without Pillion differ among themselves, the distance of a run to the nearest of them must be at
most twice the distance of the farthest two of them. Launches, also of graphs, must equal the
profiler's count; the account of memory must agree with PyTorch's and NVML's; and no program may
hang or exit differently. Programs that are not installed are skipped.
"""

import functools
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from suite import stats, torch_jobs
from suite.part import CUT_OFF, main
from suite.process import Failed, run, side_by_side
from suite.site import ROOT, SUITE, attending

# (name, arguments of net.py or the program's file, environment). Those with a star also run with
# --quick. The slowest are first: several run at a time, and so no slow one remains for the end.
PROGRAMS = (
    ("*compiled", {"network": "mlp", "task": "infer", "variant": "compile"}, {}),
    ("*jax", "jax_work.py", {}),
    ("*resnet50-inference", {"network": "resnet50", "task": "infer"}, {}),
    ("*gpt-training-amp", {"network": "gpt", "task": "train", "variant": "amp"}, {}),
    ("*cuda-graph", {"network": "bert", "task": "infer", "variant": "graph"}, {}),
    ("*loader-workers", {"network": "mlp", "task": "train", "variant": "loader"}, {}),
    ("*nccl", "nccl.py", {}),
    ("*cupy", "cupy_work.py", {}),
    ("resnet50-training", {"network": "resnet50", "task": "train"}, {}),
    ("bert-inference", {"network": "bert", "task": "infer"}, {}),
    ("bert-training", {"network": "bert", "task": "train"}, {}),
    ("streams", {"network": "resnet50", "task": "train", "variant": "streams"}, {}),
    ("expandable-segments", {"network": "gpt", "task": "train"}, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    ("cudaMallocAsync", {"network": "gpt", "task": "train"}, {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}),
    ("triton", "triton_add.py", {}),
)
STEPS, STEPS_QUICK = 20, 5
BARE, BARE_QUICK, BARE_MORE = 3, 2, 3
# A program without output for so long hangs.
HANGS_S = 120.0
# Most runs at a time, and the assumed device memory of one.
MOST_AT_ONCE, BYTES_MAX = 12, 4 << 30
# The most device memory that libraries allocate outside PyTorch's allocator (workspaces of cuBLAS
# and cuDNN), and the most that the driver takes for a context and its modules, which NVML counts
# and an account of allocations does not; MiB.
LIBRARIES_MIB_MAX, CONTEXT_MIB_MAX = 512, 1024


def measure(part):
    """Make the runs, several at a time, because the compared results do not depend on time. They go
    program by program, so that programs are complete when the time is up."""
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
    open_ = set(wanted)
    part.judged_by(lambda: [part.bound(f"{name}: results that differ", None, 0, "runs", why="its runs had not finished")
                            for name in wanted if name in open_])

    def add(name, told, is_last):
        if try_add(part, name, told, is_last):
            open_.discard(name)
            part.write("ended", CUT_OFF)

    # Best-effort runs need leases, so an idle high-priority client is attached. They run last:
    # beside high-priority work and a dozen other contexts that take turns they would launch one
    # kernel at a time, and take minutes.
    with part.site.daemon("timeslice") as daemon, attending(part.site, daemon):
        roles = {name: roles_of(part, what) for name, (what, _) in wanted.items()}
        runs = {name: {} for name in wanted}
        for _ in in_turn(part, daemon, roles, wanted, runs):
            pass
        for name, told in in_turn(part, daemon, {name: [("best-effort", 0)] for name in wanted}, wanted, runs):
            add(name, told, False)
        again = {name: [(None, BARE + index) for index in range(BARE_MORE)] for name in wanted if name in open_}
        for name, told in in_turn(part, daemon, again, wanted, runs):
            add(name, told, True)


def roles_of(part, what):
    """The runs of a program without the best-effort one: (role, number)."""
    roles = [(None, index) for index in range(BARE_QUICK if part.quick else BARE)]
    is_counted = isinstance(what, dict) and not part.site.is_software
    roles += [("counted", 0)] if is_counted else []
    return roles + ([] if is_counted and part.quick else [("high-priority", 0)])


def in_turn(part, daemon, roles, wanted, runs):
    """Make runs, as many at a time as fit. After the last run of a program yield its name and the
    outcome of each of its runs: results, or `Failed`."""
    room = min(len(os.sched_getaffinity(0)) * 3 // 4, part.site.gpu["memory_bytes"] // BYTES_MAX)
    calls = {(name, *role): functools.partial(once, part, daemon, name, *wanted[name], *role)
             for name, each in roles.items() for role in each}
    missing = {name: len(each) for name, each in roles.items()}
    for (name, *role), told in side_by_side(min(MOST_AT_ONCE, room), calls):
        runs[name][tuple(role)] = told
        missing[name] -= 1
        if missing[name] == 0:
            yield name, runs[name]


def try_add(part, name, runs, is_last):
    """Add a program's row and bounds. Return False instead if more runs without Pillion must decide
    about a difference."""
    failed = [run for run in runs.values() if isinstance(run, Failed)]
    absent = [run["not_installed"] for run in runs.values() if not isinstance(run, Failed) and "not_installed" in run]
    if absent:
        part.skip(name, absent[0])
        return True
    if not failed and not is_last and not is_equal(runs.values()):
        part.row(program=name, bare_runs_equal=is_equal(bare_of(runs)), differs=None, told="three more runs follow, without Pillion")
        return False
    part.bound(f"{name}: runs that failed", len(failed), 0, "runs", of_hardware=False)
    if failed:
        part.row(program=name, failed=[str(error) for error in failed])
        return True
    row = judged(runs)
    part.bound(f"{name}: results that differ", row["differs"], 0, "runs")
    if "launches_profiled" in row:
        part.bound(f"{name}: launches, difference to the profiler", abs(row["launches_counted"] - row["launches_profiled"]), 0)
        part.bound(f"{name}: graphs, difference to the profiler", abs(row["graph_launches_counted"] - row["graph_launches_profiled"]), 0)
    judge_memory(part, name, row)
    part.row(program=name, **row)
    return True


def is_equal(runs):
    return len({run["digest"] for run in runs}) == 1


def bare_of(runs):
    return [run for (role, _), run in runs.items() if role is None]


def judged(runs):
    """Compare a program's runs; return its row."""
    bare = bare_of(runs)
    others = {role: run for (role, _), run in runs.items() if role is not None}
    values = [run["values"] for run in bare]
    differs = 0 if is_equal(runs.values()) else sum(not stats.is_like_runs(run["values"], values) for run in others.values())
    if is_equal(bare):  # A digest shows differences that the values do not.
        differs = sum(run["digest"] != bare[0]["digest"] for run in others.values())
    row = {"bare_runs": len(bare), "bare_runs_equal": is_equal(bare), "differs": differs,
           "distances": {role: min(stats.distance(run["values"], other) for other in values) for role, run in others.items()}}
    for name, run in (("hp", others.get("high-priority", others.get("counted"))), ("be", others["best-effort"])):
        for key in ("launches", "graph_launches", "allocated_bytes", "launches_held", "bypasses", "panics_caught"):
            row[f"{key}_{name}"] = run["totals"][key]
        for key in ("held_bytes", "context_bytes", "reserved_bytes", "reserved_in_all_bytes", "nvml_bytes"):
            row[f"{key}_{name}"] = run.get(key)
    if "counted" in others:
        counted = others["counted"]
        totals = counted["totals"]
        # The profiler also counts the calls of a capture, which launch nothing.
        row["launches_counted"] = totals["launches"] + totals["launches_captured"]
        row["launches_profiled"] = counted["launches_profiled"]
        row["graph_launches_counted"] = totals["graph_launches"]
        row["graph_launches_profiled"] = counted["graph_launches_profiled"]
    return row


def judge_memory(part, name, row):
    """Compare the account's allocations with PyTorch's allocator, which has all but the libraries'
    own, and with NVML's value for the process, which includes the context."""
    for who in ("hp", "be"):
        held, reserved, nvml = (row[f"{key}_{who}"] for key in ("held_bytes", "reserved_bytes", "nvml_bytes"))
        if held is None:
            part.bound(f"{name}, {who}: has an account of memory", 0, 1, at_least=True, of_hardware=False)
            continue
        own = held - row[f"context_bytes_{who}"]
        mib = own / (1 << 20)
        if reserved is not None:
            part.bound(f"{name}, {who}: account, PyTorch has {reserved >> 20} MiB", mib, reserved / (1 << 20), "MiB", at_least=True,
                       of_hardware=False)
            part.bound(f"{name}, {who}: account above PyTorch's", mib - reserved / (1 << 20), LIBRARIES_MIB_MAX, "MiB",
                       of_hardware=False)
        if nvml is None:
            part.skip(f"{name}, {who}: memory by NVML", "NVML does not list its process id: another PID namespace?")
            continue
        part.bound(f"{name}, {who}: account above NVML's", mib - nvml / (1 << 20), 0, "MiB")
        part.bound(f"{name}, {who}: NVML above the account", nvml / (1 << 20) - mib, CONTEXT_MIB_MAX, "MiB")


def once(part, daemon, name, what, env, role, index):
    """Make one run; return its results with Pillion's counters."""
    site, title = part.site, f"{name}, {role or 'bare'}, {index}"
    klass = "high-priority" if role == "counted" else role
    argv = None if isinstance(what, dict) else [site.python, os.path.join(ROOT, "programs", what)]
    fields = {}
    if argv is None:
        fields = {**what, "steps": STEPS_QUICK if part.quick else STEPS, "size": "tiny" if site.is_software else "small"}
        fields["count"], fields["deterministic"] = role == "counted" or None, True
    hangs_s = part.patience_s(HANGS_S)
    with torch_jobs.start(site, fields, "timeslice", daemon, klass, title, env=env, argv=argv) as child:
        told = child.result(hangs_s)
        if klass and "not_installed" not in told:
            entry = daemon.job(child)
            told["totals"], memory = entry["totals"], entry["memory"] or {}
            told["held_bytes"], told["context_bytes"] = memory.get("held_bytes"), memory.get("by_kind", {}).get("context", 0)
            told["nvml_bytes"] = by_nvml(site, child.pid)
        status = child.let_end(hangs_s)
        if status != 0:
            raise Failed(f"{title} exited with status {status}: {child.said()}")
    return told


def by_nvml(site, pid):
    """The device memory of a process, as NVML reports it; None if it does not list the process."""
    _, said, _ = run([sys.executable, os.path.join(SUITE, "gpu.py"), "--processes", site.gpu["uuid"]], site.env("timeslice"), 30)
    return json.loads(said).get(str(pid))


def more(parser):
    parser.add_argument("--only-program", metavar="NAME,...", help="run these programs only")


if __name__ == "__main__":
    sys.exit(main("harmless", __doc__, measure, more))
