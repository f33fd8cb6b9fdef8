#!/usr/bin/env python3
"""profile: import the output of PyTorch's profiler and Nsight Compute, and compare it with measured
times.

PyTorch's profiler records some steps of each job of the pairs, `pillion profile import` imports the
trace, and the sum of a step's kernels is compared with the time of a step without the profiler. The
processes start side by side and work one after the other. Last, if ncu is installed and time
remains, it measures some kernels too, and both profiles are compared. The profiles are written
beside the other results; `share` and `model` use them.
"""

import contextlib
import json
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from suite import torch_jobs
from suite.part import main
from suite.process import Failed, run

STEPS, TIMED_S = 10, 2.0
# Number of kernels that ncu measures, and its set of metrics: all, or those that determine a class.
# The seconds that it may take, and the least that it needs.
NCU, NCU_QUICK = (60, "full"), (10, "basic")
NCU_S, NCU_LEAST_S = 150, 20
READY_S = 120.0


def measure(part):
    part.folder = os.path.join(part.options.beside or part.site.folder, "profiles")
    os.makedirs(part.folder, exist_ok=True)
    for path in part.options.given.split(",") if part.options.given else []:
        imported(part, os.path.basename(path).split(".")[0], [path])
    try:
        part.site.torch()
    except Failed as error:
        part.skip("PyTorch's traces", error)
        return
    if part.site.is_software:
        part.skip("PyTorch's traces", "CUPTI does not run on this device, which is a software GPU")
        return
    jobs = torch_jobs.pair_jobs(part)
    with contextlib.ExitStack() as stack:
        children = {job["name"]: [stack.enter_context(child) for child in started(part, job)] for job in jobs}
        for child in (child for both in children.values() for child in both):
            with contextlib.suppress(Failed):  # begin() reports the reason.
                child.wait_until_ready(part.patience_s(READY_S))
        recorded = [job for job in jobs if is_recorded(part, job, *children[job["name"]])]
    for job in recorded:
        by_ncu(part, job)


def trace_of(part, job):
    return part.site.path(f"{job['name']}.json")


def started(part, job):
    """Start the program that is recorded, and the one that is not."""
    site = part.site
    yield torch_jobs.start(site, job, "timeslice", None, None, f"{job['name']} recorded", steps=STEPS, trace=trace_of(part, job))
    yield torch_jobs.start(site, job, "timeslice", None, None, job["name"], seconds=min(TIMED_S, part.seconds))


def is_recorded(part, job, recorded, timed):
    """Record a job, time its steps without the profiler, and import the trace. Return whether that
    worked."""
    try:
        recorded.begin()
        recorded.result(part.patience_s(READY_S))
        recorded.let_end()
        timed.begin()
        step_ms = timed.result(60)["step_ms"]
        profile = imported(part, job["name"], [trace_of(part, job)], "--request-range", "pillion_step")
    except Failed as error:
        part.bound(f"{job['name']}: recording", 1, 0, "failed", of_hardware=False)
        part.row(job=job["name"], failed=str(error))
        return False
    part.bound(f"{job['name']}: recording", 0, 0, "failed", of_hardware=False)
    kernels_ms = sum(kernel["duration_ns"]["sum"] for kernel in profile["kernels"]) / 1e6 / STEPS
    part.row(job=job["name"], step_ms=step_ms, kernels_ms=kernels_ms, explained=kernels_ms / step_ms)
    return True


def imported(part, name, files, *options):
    """Import files as one profile, add a row with its contents, and return it."""
    path = os.path.join(part.folder, f"{name}.profile.toml")
    pillion = part.site.program("pillion")
    _, _, said = run([pillion, "profile", "import", *files, *options, "-o", path], part.site.env("timeslice"), 60)
    _, text, _ = run([pillion, "profile", "show", path, "--json"], part.site.env("timeslice"), 60)
    profile = json.loads(text)
    classes = {}
    for kernel in profile["kernels"]:
        classes[kernel["class"]] = classes.get(kernel["class"], 0) + 1
    part.row(profile=name, kernels=len(profile["kernels"]), launches=profile["totals"]["launches"], classes=classes,
             notices=said.strip().split("\n")[-3:])
    return profile


def by_ncu(part, job):
    """Measure some kernels with Nsight Compute, and compare its durations with the trace's."""
    ncu = shutil.which("ncu")
    if ncu is None:
        part.skip(f"{job['name']}: Nsight Compute", "ncu is not installed")
        return
    if part.left_s < NCU_LEAST_S:
        part.skip(f"{job['name']}: Nsight Compute", f"not enough time left: {part.left_s:.0f} s")
        return
    launches, metrics = NCU_QUICK if part.quick else NCU
    report = part.site.path(f"{job['name']}-ncu")
    argv = [ncu, "--set", metrics, "--launch-skip", "200", "--launch-count", str(launches), "--force-overwrite", "-o", report,
            part.site.python, torch_jobs.NET, *torch_jobs.arguments(job, steps=3)]
    try:
        run(argv, part.site.env("timeslice", wheel=True), min(NCU_S, part.left_s - 5))
        imported(part, f"{job['name']}.ncu", [report + ".ncu-rep"])
        both = [os.path.join(part.folder, f"{job['name']}{end}.profile.toml") for end in ("", ".ncu")]
        _, text, _ = run([part.site.program("pillion"), "profile", "compare", *both, "--json"], part.site.env("timeslice"), 60)
        part.row(compared=job["name"], by="ncu against PyTorch's profiler", differences=json.loads(text))
    except Failed as error:
        part.skip(f"{job['name']}: Nsight Compute", error)


def more(parser):
    parser.add_argument("--given", metavar="FILE,...", help="also import these files of profilers")


if __name__ == "__main__":
    sys.exit(main("profile", __doc__, measure, more))
