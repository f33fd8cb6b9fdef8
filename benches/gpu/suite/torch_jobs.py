"""PyTorch programs as jobs: the list, and starting one without Pillion or in a class."""

import json
import os

from .process import Child
from .site import ROOT

NET = os.path.join(ROOT, "programs", "net.py")
# High-priority inference and best-effort training; a pair is one of each. Batch sizes are those of
# real services and trainings.
INFERENCES = (
    {"name": "resnet50-inference", "network": "resnet50", "task": "infer", "batch": 4},
    {"name": "bert-inference", "network": "bert", "task": "infer", "batch": 2},
)
# Inference that runs only if `share --pairs` names it.
GENERATION = {"name": "gpt-generation", "network": "gpt", "task": "generate", "batch": 8, "variant": "amp"}
TRAININGS = (
    {"name": "resnet50-training", "network": "resnet50", "task": "train", "batch": 32},
    {"name": "gpt-training", "network": "gpt", "task": "train", "batch": 8, "variant": "amp"},
)


def pairs(part):
    """Pairs of high-priority and best-effort jobs that share a GPU."""
    return made(part, [(hp, be) for hp in INFERENCES for be in TRAININGS])


def generation_pairs(part):
    """Pairs in which a language model generates text."""
    return made(part, [(GENERATION, be) for be in TRAININGS])


def made(part, jobs):
    return [(sized(part, hp), sized(part, be)) for hp, be in jobs]


def pair_jobs(part):
    """All jobs of these pairs, each once; with --quick those of the first pair."""
    jobs = {}
    for pair in pairs(part)[:1 if part.quick else None]:
        jobs.update((job["name"], job) for job in pair)
    return list(jobs.values())


def sized(part, job):
    """The job at its size: tiny on a software GPU, whose kernels take the host's time."""
    if part.site.is_software:
        return {**job, "size": "tiny", "batch": 2, "network": "mlp" if job["network"] == "resnet50" else job["network"]}
    return {**job, "size": "full"}


def order(seconds, **more):
    """The line that makes a running program work for `seconds`, with `more` of its options
    changed."""
    return json.dumps({"seconds": seconds, **{name: value for name, value in more.items() if value is not None}})


def arguments(job, **more):
    """The command-line arguments of the program for a job."""
    fields = {name: value for name, value in {**job, **more}.items() if name != "name" and value is not None}
    words = []
    for name, value in fields.items():
        words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return words


def start(site, job, sharing, daemon, klass, name, env=None, argv=None, profile=None, asks=(), **more):
    """Start the program as a `Child`: without Pillion if `klass` is None, else as a job in that
    class. `asks` are further options of `pillion run`."""
    argv = argv or [site.python, NET, *arguments(job, **more)]
    variables = dict(env or {})
    if klass:
        argv = site.pillion(klass, argv, profile=profile, more=asks)
        variables["PILLION_SOCKET"] = daemon.socket
    # Separate caches: a run would not compile kernels that an earlier run has compiled.
    for cache in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUPY_CACHE_DIR"):
        variables.setdefault(cache, site.path(f"cache-{name}"))
    return Child(argv, site.env(sharing, wheel=True, **variables), name)
