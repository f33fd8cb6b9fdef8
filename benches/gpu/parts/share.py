#!/usr/bin/env python3
"""share: a high-priority job that answers requests beside a best-effort one that never pauses.

The jobs of a pair are PyTorch inference, open loop, and training; without PyTorch, and always in a
full run, synthetic kernels. With --quick one pair and one load. Modes: each alone, time slicing,
MPS, MPS with CUDA_MPS_CLIENT_PRIORITY, Pillion without and with MPS; in a full run also Pillion's
other policies, and its default policy with each of its switches off. All modes have the same
arrivals. A load is the share of the time for which the high-priority job alone would be busy. Last
the curve: the high-priority job's p99 against the best-effort job's kernel length.

PyTorch programs of a mode start once and take orders; the bounds are judged again after each mode.
"""

import contextlib
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from suite import stats, torch_jobs
from suite.part import main
from suite.process import Child, Failed

LOADS, ARRIVALS = (0.2, 0.5), ("poisson", "bursts")
SLOWDOWN_MPS_MAX = {0.2: 1.10, 0.5: 1.20}
SLOWDOWN_TIMESLICE_MAX = {0.2: 1.25}
BE_SHARE_MIN = 0.45
# Other policies, and switches of the policy `pillion` (with MPS if available): in a full run, at
# the first load.
POLICIES = ("orion", "temporal", "launch-gate", "none")
SWITCHES = ("feedback", "beside", "kernel_pairs", "gap_prediction", "learnt_pace", "learnt_durations", "block_priority")
SOLO_RUNS, SOLO_RUNS_QUICK = 3, 2
# Runs that only give a rate or the time of a request last so long at most: the result is a mean.
ALONE_S = 5.0
LENGTHS_US, LENGTHS_QUICK_US = (100, 300, 1_000, 3_000, 10_000, 30_000), (3_000, 300)
# The synthetic pair: a request is ten kernels of 100 us, the best-effort job's kernels last 1 ms.
SHORT_US, KERNELS, LONG_US = 100, 10, 1_000
BLOCKS_PER_SM = 8
# A program hangs if it is not ready after READY_S, or silent for LATE_S after its time is over.
READY_S, LATE_S = 90.0, 30.0
CLASSES = {"hp": "high-priority", "be": "best-effort"}
# Name, whether the jobs run under Pillion, lines for `[policy]`, variables of the best-effort job's
# environment, options of the high-priority job's `pillion run`.
BARE, CLIENT_PRIORITY = ("", False, "", {}, ()), ("+priority", False, "", {"CUDA_MPS_CLIENT_PRIORITY": "1"}, ())
PILLION = ("+pillion", True, "", {}, ())
# With requests marked by the NVTX ranges of net.py: the default target, and a looser one.
REQUESTS = ("--request-range", "/pillion_request")
MARKED, FAR = ("+pillion-marked", True, "", {}, REQUESTS), ("+pillion-2x", True, "", {}, (*REQUESTS, "--slo", "2x"))
SLO_FAR = 2.0


def measure(part):
    sharings, no_mps = part.site.sharings()
    if no_mps:
        part.skip("under MPS", no_mps)
    found = []
    part.judged_by(lambda: judge(part, found))
    for name, pair in pairs(part):
        for load in chosen(part.options.loads, LOADS, part.quick):
            for arrivals in chosen(part.options.arrivals, ARRIVALS, part.quick or name == "synthetic"):
                about = {"pair": name, "load": load, "arrivals": arrivals}
                try:
                    compare(part, pair, sharings, about, found)
                except Failed as error:
                    part.bound(f"{name}, load {load}: measurement", 1, 0, "failed", of_hardware=False)
                    part.row(**about, failed=str(error))
    if not part.options.no_curve:
        try:
            curve(part, sharings)
        except Failed as error:
            part.skip("the curve", error)


def pairs(part):
    """The selected pairs, by default all. With --quick the default is one, of PyTorch if
    available."""
    synthetic = [("synthetic", Synthetic(part))]
    try:
        part.site.torch()
    except Failed as error:
        if part.options.pairs and part.options.pairs != "synthetic":
            raise
        part.skip("pairs of PyTorch programs", error)
        return synthetic
    named = lambda jobs: [(f"{hp['name']} + {be['name']}", Torch(part, hp, be)) for hp, be in jobs]  # noqa: E731
    usual = named(torch_jobs.pairs(part)) + synthetic
    if not part.options.pairs:
        return usual[:1] if part.quick else usual
    known = dict(usual + named(torch_jobs.generation_pairs(part)))
    asked = part.options.pairs.split(",")
    for name in asked:
        if name not in known:
            raise Failed(f"no pair '{name}'; pairs are {', '.join(known)}")
    return [(name, known[name]) for name in asked]


def chosen(asked, every, is_first_only):
    """The loads or arrivals that an option selects, or else the first, or all."""
    if asked:
        return [value for value in every if str(value) in asked.split(",")]
    return every[:1] if is_first_only else every


class Torch:
    """A pair of PyTorch programs. A running program takes any number of orders."""

    lasts = True

    def __init__(self, part, hp, be):
        self.part, self.jobs, self.profiles = part, {"hp": hp, "be": be}, {}
        for role, job in self.jobs.items():
            path = os.path.join(part.options.beside or os.devnull, "profiles", f"{job['name']}.profile.toml")
            self.profiles[role] = path if os.path.exists(path) else None

    def start(self, role, sharing, daemon, env, seconds, asks=(), **_):
        job = self.jobs[role]
        klass = None if daemon is None else CLASSES[role]
        title = f"{job['name']}, {sharing}{', ' + klass if klass else ''}"
        return torch_jobs.start(self.part.site, {**job, "name": title}, sharing, daemon, klass, title, env=env,
                                profile=self.profiles[role] if klass else None, asks=asks, seconds=seconds)


class Synthetic:
    """A pair of probes, which run once and start quickly. Their launches are known, so under
    Pillion each has a profile."""

    lasts = False

    def __init__(self, part, long_us=LONG_US):
        self.part, self.long_us = part, long_us

    def start(self, role, sharing, daemon, env, seconds, rate=None, seed=1, **_):
        site = self.part.site
        if role == "hp":
            argv = site.probe("pulse", "--us", SHORT_US, "--kernels", KERNELS, "--rate", rate or 0, "--seed", seed,
                              "--seconds", seconds)
        else:
            argv = site.spinner("--us", self.long_us, "--seconds", seconds)
        env = dict(env)
        if daemon:
            us = SHORT_US if role == "hp" else self.long_us
            argv = site.pillion(CLASSES[role], argv, profile=self.profile(us))
            env["PILLION_SOCKET"] = daemon.socket
        return Child(argv, site.env(sharing, **env), f"synthetic {role}, {sharing}")

    def profile(self, us):
        """The path of a profile, as a trace: the probes' kernel with the blocks that fill the
        device, of `us` microseconds."""
        path = self.part.site.path(f"spin-{us}.trace")
        if not os.path.exists(path):
            with open(path, "w") as file:
                file.write(trace(self.part.site.gpu["sms"], us))
        return path


def trace(sms, us, times=1, device="V100-SXM2-16GB"):
    """A Pillion trace of the probes' kernel."""
    return (f"pillion-trace 1\ndevice {device}\nkernel class=compute grid={sms * BLOCKS_PER_SM},1,1 block=256,1,1 shared_bytes=0 "
            f"registers=28 sm_needed={sms} block_ns={us * 1000:.0f} duration_ns={us * 1000:.0f} compute_demand=0.9 "
            f'bandwidth_demand=0.01 source="spin" name="pillion_compute$0"\nlaunch 0 x{times}\n')


class Runner:
    """A job of a pair in a mode, which runs on demand: one process for all runs, or one for each
    run. A context manager."""

    def __init__(self, pair, role, sharing, daemon=None, env=None, asks=()):
        self.pair, self.role, self.sharing, self.daemon, self.env = pair, role, sharing, daemon, env or {}
        self.child, self.how, self.is_ready = None, None, False
        if pair.lasts:  # They start side by side.
            self.child = pair.start(role, sharing, daemon, self.env, ALONE_S, asks=asks)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child:
            self.child.end()

    def prepare(self, seconds, **how):
        """Have a process ready for a run of `seconds` with the options `how`."""
        self.how = {"seconds": seconds, **how}
        if not self.pair.lasts:
            if self.child:
                self.child.end()
            self.child = self.pair.start(self.role, self.sharing, self.daemon, self.env, **self.how)
            self.is_ready = False
        if not self.is_ready:
            self.child.wait_until_ready(self.pair.part.patience_s(READY_S))
            self.is_ready = True

    def begin(self):
        self.child.begin(torch_jobs.order(**self.how))

    def result(self):
        told = self.child.result(self.how["seconds"] + self.pair.part.patience_s(LATE_S))
        if told.get("latencies_ms") == []:  # Possible at a low rate and in a short time.
            raise Failed("no request was due in so short a time")
        return told

    def alone(self, seconds, **how):
        self.prepare(seconds, **how)
        self.begin()
        return self.result()


def beside(hp, be, seconds, **how):
    """Run both jobs at once. Return the latencies, the best-effort rate meanwhile, and Pillion's
    counters of the best-effort job."""
    be.prepare(seconds)
    hp.prepare(seconds, **how)
    be.begin()
    hp.begin()
    told, rate = hp.result(), be.result()["per_s"]
    if not be.daemon:
        return told["latencies_ms"], rate, None
    held, mine = be.daemon.job(be.child)["totals"], be.daemon.job(hp.child)
    return told["latencies_ms"], rate, {**{key: held[key] for key in (
        "launches", "launches_held", "launches_beside_hp", "launches_forced", "launches_unknown", "slips")},
        "requests_marked": mine["totals"]["requests_marked"], "control": mine["control"]}


def compare(part, pair, sharings, about, found):
    """Measure both jobs alone, then in each mode; add rows and results as they arrive. The PyTorch
    processes without Pillion and MPS do all runs that need neither, so that --quick has time."""
    with Runner(pair, "hp", "timeslice") as hp, Runner(pair, "be", "timeslice") as be:
        alone_s, runs = min(ALONE_S, part.seconds), SOLO_RUNS_QUICK if part.quick else SOLO_RUNS
        told = hp.alone(alone_s)
        # A PyTorch program reports it; for the probes it is the latency.
        service_ms = told.get("step_ms") or stats.median(told["latencies_ms"])
        be_alone = be.alone(alone_s)["per_s"]
        how = {"rate": about["load"] * 1e3 / service_ms, "seed": 1, "arrivals": about["arrivals"]}
        solos = [stats.latencies(hp.alone(part.seconds, **how)["latencies_ms"]) for _ in range(runs)]
        p99, spread = stats.median([solo["p99_ms"] for solo in solos]), stats.spread([solo["p99_ms"] for solo in solos])
        part.row(**about, mode="alone", service_ms=service_ms, per_s_be=be_alone, spread=spread, solos=solos, rate=how["rate"],
                 **solos[0])
        mine = {"name": f"{about['pair']}, {about['arrivals']}", "spread": spread}
        found.append((about["load"], mine))

        def measured(mode, hp, be):
            try:
                latencies, rate, totals = beside(hp, be, part.seconds, **how)
            except Failed as error:
                part.skip(f"{about['pair']}, load {about['load']}, {mode}", error)
                return
            run = stats.latencies(latencies)
            mine[mode] = {"slowdown": run["p99_ms"] / p99, "share": rate / be_alone}
            part.row(**about, mode=mode, **mine[mode], **run, totals=totals, latencies_ms=latencies)

        measured("timeslice", hp, be)
    for sharing, modes in stages(part, sharings, about):
        try:
            stage(part, pair, sharing, modes, measured)
        except Failed as error:
            part.skip(f"{about['pair']}, load {about['load']}, {sharing}{modes[0][0]}", error)


def stages(part, sharings, about):
    """The measurements after time slicing, most important first: a kind of sharing, and the modes
    that use the same high-priority process."""
    every = [("mps", [PILLION]), ("mps", [CLIENT_PRIORITY, BARE]), ("timeslice", [PILLION])]
    if about["pair"] != "synthetic":  # The probes mark no requests.
        every += [("mps", [FAR]), ("mps", [MARKED])]
    if not part.quick and (about["load"], about["arrivals"]) == (LOADS[0], ARRIVALS[0]):
        every += [(sharing, [(f"+{policy}", True, f'name = "{policy}"', {}, ())]) for policy in POLICIES for sharing in sharings]
        # Under MPS, for which Pillion is meant, if available.
        every += [(sharings[-1], [(f"+pillion-no-{switch}", True, f"{switch} = false", {}, ())]) for switch in SWITCHES]
    return [(sharing, modes) for sharing, modes in every if sharing in sharings]


def stage(part, pair, sharing, modes, measured):
    """Measure the high-priority job beside the best-effort one of each mode in turn."""
    with contextlib.ExitStack() as stack:
        _, is_pillion, policy, _, asks = modes[0]
        daemon = stack.enter_context(part.site.daemon(sharing, policy)) if is_pillion else None
        runners = [stack.enter_context(Runner(pair, "be", sharing, daemon, mode[3])) for mode in modes]
        hp = stack.enter_context(Runner(pair, "hp", sharing, daemon, asks=asks))
        for mode, be in zip(modes, runners):
            measured(sharing + mode[0], hp, be)


def judge(part, found):
    """Add the bounds: on the mean of the pairs at a load, and for each pair against the
    alternative without Pillion."""
    for load in sorted({load for load, _ in found}):
        runs = [run for at, run in found if at == load]
        for sharing, limits in (("mps", SLOWDOWN_MPS_MAX), ("timeslice", SLOWDOWN_TIMESLICE_MAX)):
            mine = [run for run in runs if f"{sharing}+pillion" in run]
            if not mine or load not in limits:
                continue
            mean = lambda what: sum(run[f"{sharing}+pillion"][what] for run in mine) / len(mine)  # noqa: E731
            spread = sum(run["spread"] for run in mine) / len(mine)
            part.bound(f"{sharing}, load {load}: HP p99, mean of {len(mine)}", mean("slowdown"), limits[load], "x", spread=spread)
            if sharing == "mps":
                part.bound(f"{sharing}, load {load}: BE share, mean of {len(mine)}", mean("share"), BE_SHARE_MIN, "", at_least=True)
            for run in runs if sharing == "mps" else []:
                if "mps+pillion-2x" in run:
                    part.bound(f"{run['name']}, load {load}: p99 at a target of {SLO_FAR:g}x", run["mps+pillion-2x"]["slowdown"], SLO_FAR, "x",
                               spread=run["spread"])
            other = "mps+priority" if sharing == "mps" else "timeslice"
            for run in mine:
                if other in run:
                    part.bound(f"{run['name']}, load {load}: p99 below {other}", run[f"{sharing}+pillion"]["slowdown"],
                               run[other]["slowdown"], "x", spread=run["spread"])


def curve_seconds(seconds):
    """The duration of a point of the curve; its requests are short and many."""
    return max(0.3, seconds / 7)


def curve(part, sharings):
    """Measure p99 against the best-effort kernel length, with and without Pillion. This shows the
    protection that is possible at all."""
    seconds = curve_seconds(part.seconds)
    with Runner(Synthetic(part), "hp", "timeslice") as hp:
        how = {"rate": LOADS[0] * 1e3 / stats.median(hp.alone(seconds)["latencies_ms"])}
        solo = stats.latencies(hp.alone(seconds, **how)["latencies_ms"])
    part.row(curve="alone", rate=how["rate"], **solo)

    def measured(mode, hp, be):
        latencies, rate, totals = beside(hp, be, seconds, **how)
        run, long_us = stats.latencies(latencies), be.pair.long_us
        part.row(curve=mode, kernel_us=long_us, slowdown=run["p99_ms"] / solo["p99_ms"], be_busy=rate * long_us / 1e6, **run,
                 totals=totals)

    for long_us in LENGTHS_QUICK_US if part.quick else LENGTHS_US:
        for sharing in reversed(sharings):
            for mode in (PILLION, BARE):
                try:
                    stage(part, Synthetic(part, long_us), sharing, [mode], measured)
                except Failed as error:
                    part.skip(f"curve, {long_us} us, {sharing}{mode[0]}", error)


def more(parser):
    parser.add_argument("--pairs", metavar="'A + B',...", help="run these only: synthetic, 'resnet50-inference + gpt-training', 'gpt-generation + gpt-training', ...")
    parser.add_argument("--loads", metavar="L,...", help="run these only: 0.2, 0.5")
    parser.add_argument("--arrivals", metavar="A,...", help="run these only: poisson, bursts")
    parser.add_argument("--no-curve", action="store_true", help="leave the curve out")


if __name__ == "__main__":
    sys.exit(main("share", __doc__, measure, more))
