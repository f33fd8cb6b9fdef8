#!/usr/bin/env python3
"""doors: the driver's entry points that real libraries obtain, the door of each, and whether
Pillion hooks it.

Each program runs under Pillion with PILLION_LOG=debug, which lists the resolved entry points. An
entry point that launches or allocates and that a program obtained as the driver's own function is a
hole: the part fails. An entry point that the table does not have also counts as a hole if its name
is that of a launch or an allocation.
"""

import csv
import functools
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from suite import torch_jobs
from suite.part import main
from suite.process import Failed, side_by_side
from suite.site import ROOT

LISTED = re.compile(r"in all, (hooked|the driver's own), (?:by )?([^:]+): ?(.+)$")
# Prefixes of the names of entry points that launch or allocate device memory: those of CUDA 11.7 to
# 13.5, and the likely ones of newer versions.
LAUNCHES_OR_ALLOCATES = re.compile(
    r"cu(Launch|GraphLaunch|MemAlloc|MemCreate|MemPoolCreate|Array3?D?Create|MipmappedArrayCreate|GraphInstantiate)")
PROGRAMS = (
    ("cudart, cuBLAS", {"network": "mlp", "task": "train"}),
    ("cuDNN", {"network": "resnet50", "task": "train"}),
    ("CUDA graphs", {"network": "bert", "task": "infer", "variant": "graph"}),
    ("Triton", "triton_add.py"),
    ("NCCL", "nccl.py"),
    ("CuPy", "cupy_work.py"),
    ("JAX", "jax_work.py"),
)


def measure(part):
    with open(part.site.program("entry_points.csv"), newline="") as file:
        table = {entry["symbol"]: entry for entry in csv.DictReader(file)}
    with part.site.daemon("timeslice") as daemon:
        examine(part, daemon, table, "probe", None)
        try:
            part.site.torch()
        except Failed as error:
            part.skip("frameworks", error)
            return
        programs = dict(PROGRAMS[:4] if part.quick else PROGRAMS)
        # Several at a time: timing does not affect the result.
        calls = {entry[0]: functools.partial(examine, part, daemon, table, *entry) for entry in programs.items()}
        for name, found in side_by_side(min(4, len(os.sched_getaffinity(0)) // 2), calls):
            if isinstance(found, Failed):
                part.row(program=name, failed=str(found))
                part.bound(f"{name}: measurement", 1, 0, "failed", of_hardware=False)


def examine(part, daemon, table, name, what):
    """Run a program and add a row with the entry points that it obtained."""
    site, job = part.site, f"doors-{name.replace(' ', '-').replace(',', '')}"
    if what is None:
        argv = site.pillion("high-priority", site.probe("spinner", "--seconds", 0.2))
    elif isinstance(what, str):
        argv = [site.python, os.path.join(ROOT, "programs", what)]
    else:
        argv = None
    fields = {} if argv else {**what, "steps": 3, "size": "tiny" if site.is_software else "small"}
    env = {"PILLION_LOG": "debug", "PILLION_SOCKET": daemon.socket}
    klass = None if what is None else "high-priority"
    with torch_jobs.start(site, fields, "timeslice", daemon, klass, job, env, argv) as child:
        if what is None:
            child.wait_until_ready()
            child.begin()
        told = child.result(part.patience_s(120.0))
        if "not_installed" in told:
            part.skip(name, told["not_installed"])
            return
        totals = daemon.job(child)["totals"]
        status = child.let_end(60)
        if status != 0:
            raise Failed(f"{job} exited with status {status}: {child.said()}")
        obtained = resolved(child.log())
    holes = sorted(symbol for symbol, entry in obtained.items() if is_hole(symbol, entry["hooked"], table))
    doors = {}
    for entry in obtained.values():
        for door in entry["doors"]:
            doors[door] = doors.get(door, 0) + 1
    part.row(program=name, obtained=len(obtained), hooked=sum(entry["hooked"] for entry in obtained.values()), doors=doors,
             holes=holes, launches=totals["launches"], bypasses=totals["bypasses"],
             symbols={symbol: sorted(entry["doors"]) for symbol, entry in sorted(obtained.items())})
    part.bound(f"{name}: entry points that bypass Pillion", len(holes), 0, "names", of_hardware=False)
    part.bound(f"{name}: launches seen", totals["launches"] + totals["graph_launches"], 1, at_least=True, of_hardware=False)


def resolved(log):
    """Each entry point in the lists at the log's end: whether it is hooked, and the doors through
    which it was obtained."""
    obtained = {}
    for line in log.split("\n"):
        match = LISTED.search(line)
        if match is None:
            continue
        for symbol in match[3].split():
            entry = obtained.setdefault(symbol, {"hooked": match[1] == "hooked", "doors": set()})
            entry["doors"].add(match[2])
    return obtained


def is_hole(symbol, is_hooked, table):
    """Whether a program has the driver's own function and that launches or allocates memory, by the
    table or by its name."""
    known = table.get(symbol, {"route": "pass"})
    return not is_hooked and (known["route"] == "hook" or bool(LAUNCHES_OR_ALLOCATES.match(symbol)))


if __name__ == "__main__":
    sys.exit(main("doors", __doc__, measure))
