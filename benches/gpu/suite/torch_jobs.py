"""PyTorch programs as jobs: which there are, and how one is started without Pillion or in a
class."""

import json
import os

from .process import Child
from .site import ROOT

NET = os.path.join(ROOT, "programs", "net.py")
# High-priority inference and best-effort training; a pair is one of each. Batches are what services
# and trainings use.
INFERENCES = (
    {"name": "resnet50-inference", "network": "resnet50", "task": "infer", "batch": 4},
    {"name": "bert-inference", "network": "bert", "task": "infer", "batch": 2},
)
TRAININGS = (
    {"name": "resnet50-training", "network": "resnet50", "task": "train", "batch": 32},
    {"name": "gpt-training", "network": "gpt", "task": "train", "batch": 8, "variant": "amp"},
)


def pairs(part):
    """High-priority and best-effort jobs that share a GPU: the first only where it must be
    quick."""
    every = [(hp, be) for hp in INFERENCES for be in TRAININGS]
    return [(sized(part, hp), sized(part, be)) for hp, be in (every[:1] if part.quick else every)]


def pair_jobs(part):
    """All jobs of these pairs, each once."""
    jobs = {}
    for pair in pairs(part):
        jobs.update((job["name"], job) for job in pair)
    return list(jobs.values())


def sized(part, job):
    """At the size that fits: on a software GPU, whose kernels run on the host's time, tiny."""
    if part.site.is_software:
        return {**job, "size": "tiny", "batch": 2, "network": "mlp" if job["network"] == "resnet50" else job["network"]}
    return {**job, "size": "full"}


def order(seconds, **more):
    """The line that has a program of these work for so long, its options otherwise as it was
    started."""
    return json.dumps({"seconds": seconds, **{name: value for name, value in more.items() if value is not None}})


def arguments(job, **more):
    """Of the program for a job."""
    fields = {name: value for name, value in {**job, **more}.items() if name != "name" and value is not None}
    words = []
    for name, value in fields.items():
        words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return words


def start(site, job, sharing, daemon, klass, name, env=None, argv=None, profile=None, asks=(), **more):
    """The program as a `Child`: by itself where `klass` is None, else as a job of that name under
    Pillion, `asks` further options of `pillion run`."""
    argv = argv or [site.python, NET, *arguments(job, **more)]
    variables = dict(env or {})
    if klass:
        argv = site.pillion(klass, argv, profile=profile, more=asks)
        variables["PILLION_SOCKET"] = daemon.socket
    # What one run has compiled the next one would not compile.
    for cache in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUPY_CACHE_DIR"):
        variables.setdefault(cache, site.path(f"cache-{name}"))
    return Child(argv, site.env(sharing, wheel=True, **variables), name)
