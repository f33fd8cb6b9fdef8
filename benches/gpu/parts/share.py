#!/usr/bin/env python3
"""share: a high-priority job that answers requests beside a best-effort one that never pauses.

The jobs of a pair: PyTorch inference, open loop, with training; without PyTorch, and always in a full run, synthetic kernels.
With --quick one pair and one load.
Modes: each alone, time slicing, MPS, MPS with CUDA_MPS_CLIENT_PRIORITY, Pillion without and with MPS; in a full run also the
policies that it can be told to follow instead. The same arrivals in each. Loads are the share of the time that the high-priority job alone
would be busy. Last the curve: the best-effort job's kernel length against the high-priority job's p99.
"""

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
POLICIES = ("orion", "temporal", "launch-gate", "none")
SOLO_RUNS = 3
LENGTHS_US, LENGTHS_QUICK_US = (100, 300, 1_000, 3_000, 10_000, 30_000), (300, 3_000)
# The synthetic pair: a request is ten kernels of 100 us, the best-effort job's kernels last 1 ms.
SHORT_US, KERNELS, LONG_US = 100, 10, 1_000
BLOCKS_PER_SM = 8
# Name, whether the jobs run under Pillion, lines of its policy, of the best-effort job's environment.
BARE, CLIENT_PRIORITY, PILLION = ("", False, "", {}), ("+priority", False, "", {"CUDA_MPS_CLIENT_PRIORITY": "1"}), ("+pillion", True, "", {})


def measure(part):
    sharings, no_mps = part.site.sharings()
    if no_mps:
        part.skip("under MPS", no_mps)
    found = []
    for name, pair in pairs(part):
        for load in chosen(part.options.loads, LOADS, part.quick):
            for arrivals in chosen(part.options.arrivals, ARRIVALS, part.quick or name == "synthetic"):
                try:
                    found.append((load, compare(part, name, pair, sharings, load, arrivals)))
                except Failed as error:
                    part.row(pair=name, load=load, arrivals=arrivals, failed=str(error))
                    part.bound(f"{name}, load {load}: could be measured", 1, 0, "failed", of_hardware=False)
    judge(part, found)
    if not part.options.no_curve:
        try:
            curve(part, sharings)
        except Failed as error:
            part.skip("the curve", error)


def pairs(part):
    """Those that are asked for: with --quick one, the first of PyTorch if it is there."""
    synthetic = [("synthetic", Synthetic(part))]
    try:
        part.site.torch()
    except Failed as error:
        part.skip("pairs of PyTorch programs", error)
        return synthetic
    every = [(f"{hp['name']} + {be['name']}", Torch(part, hp, be)) for hp, be in torch_jobs.pairs(part)] + synthetic
    asked = part.options.pairs
    return [pair for pair in every if pair[0] in asked.split(",")] if asked else every[:1] if part.quick else every


def chosen(asked, every, is_first_only):
    """Of loads or arrivals those that are asked for, or the first, or all."""
    if asked:
        return [value for value in every if str(value) in asked.split(",")]
    return every[:1] if is_first_only else every


class Torch:
    """A pair of PyTorch programs."""

    def __init__(self, part, hp, be):
        self.part, self.jobs, self.profiles, self.alone = part, {"hp": hp, "be": be}, {}, None
        for role, job in self.jobs.items():
            path = os.path.join(part.options.beside or os.devnull, "profiles", f"{job['name']}.profile.toml")
            self.profiles[role] = path if os.path.exists(path) else None

    def start(self, role, sharing, daemon, env, **more):
        job = self.jobs[role]
        klass = None if daemon is None else "high-priority" if role == "hp" else "best-effort"
        more["seconds"] = self.part.seconds
        return torch_jobs.start(self.part.site, job, sharing, daemon, klass, job["name"], env=env,
                                profile=self.profiles[role] if klass else None, **more)


class Synthetic:
    """A pair of probes. What they launch is known, so under Pillion each has its profile."""

    def __init__(self, part, long_us=LONG_US):
        self.part, self.long_us, self.alone = part, long_us, None

    def start(self, role, sharing, daemon, env, rate=None, seed=1, arrivals="poisson"):
        site, seconds = self.part.site, self.part.seconds
        if role == "hp":
            argv = site.probe("pulse", "--us", SHORT_US, "--kernels", KERNELS, "--rate", rate or 0, "--seed", seed,
                              "--seconds", seconds)
        else:
            argv = site.spinner("--us", self.long_us, "--seconds", seconds)
        env = dict(env or {})
        if daemon:
            us = SHORT_US if role == "hp" else self.long_us
            argv = site.pillion("high-priority" if role == "hp" else "best-effort", argv, profile=self.profile(us))
            env["PILLION_SOCKET"] = daemon.socket
        return Child(argv, site.env(sharing, **env), "synthetic " + role)

    def profile(self, us):
        """As a trace: the probes' kernel with as many blocks as fill the device, lasting so long."""
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


def together(part, pair, sharing, mode, **hp):
    """Both jobs at once in a mode: the latencies, and the best-effort rate meanwhile."""
    name, is_pillion, policy, env = mode
    if is_pillion:
        with part.site.daemon(sharing, policy) as daemon:
            return beside(pair, sharing, daemon, env, hp)
    return beside(pair, sharing, None, env, hp)


def beside(pair, sharing, daemon, env, hp):
    with pair.start("be", sharing, daemon, env) as be, pair.start("hp", sharing, daemon, {}, **hp) as child:
        be.wait_until_ready()
        child.wait_until_ready()
        be.begin()
        child.begin()
        told = answered(child.result(pair.part.seconds + 90))
        rate = be.result(pair.part.seconds + 90)["per_s"]
        held = daemon and daemon.job(be)["totals"]
    return told["latencies_ms"], rate, held and {key: held[key] for key in (
        "launches", "launches_held", "launches_beside_hp", "launches_forced", "launches_unknown", "slips")}


def answered(told):
    """What a job told, if it was asked for anything: at a low rate and in a short time nothing may be due."""
    if told.get("latencies_ms") == []:
        raise Failed("no request was due in so short a time")
    return told


def alone(pair, role, **more):
    with pair.start(role, "timeslice", None, {}, **more) as child:
        child.wait_until_ready()
        child.begin()
        return answered(child.result(pair.part.seconds + 90))


def of_each_alone(pair):
    """The time of a request, one after the other, and the best-effort job's rate. Measured once for each pair."""
    if pair.alone is None:
        told = alone(pair, "hp")
        # PyTorch's says it; of the probes it is the latency.
        pair.alone = told.get("step_ms") or stats.median(told["latencies_ms"]), alone(pair, "be")["per_s"]
    return pair.alone


def compare(part, name, pair, sharings, load, arrivals):
    """A pair at a load: a row for each mode; what the bounds need of it."""
    service_ms, be_alone = of_each_alone(pair)
    hp = {"rate": load * 1e3 / service_ms, "seed": 1, "arrivals": arrivals}
    solos = [stats.latencies(alone(pair, "hp", **hp)["latencies_ms"]) for _ in range(2 if part.quick else SOLO_RUNS)]
    p99 = stats.median([solo["p99_ms"] for solo in solos])
    spread = stats.spread([solo["p99_ms"] for solo in solos])
    about = {"pair": name, "load": load, "arrivals": arrivals}
    part.row(**about, mode="alone", service_ms=service_ms, per_s_be=be_alone, spread=spread, solos=solos, rate=hp["rate"],
             **solos[0])
    found = {"name": f"{name}, {arrivals}", "spread": spread}
    modes = [(sharing, mode) for mode in (PILLION, BARE) for sharing in sharings]
    modes += [("mps", CLIENT_PRIORITY)] if "mps" in sharings else []
    if not part.quick and (load, arrivals) == (LOADS[0], ARRIVALS[0]):
        modes += [(sharing, (f"+{policy}", True, f'name = "{policy}"', {})) for sharing in sharings for policy in POLICIES]
    for sharing, mode in modes:
        try:
            latencies, rate, totals = together(part, pair, sharing, mode, **hp)
        except Failed as error:
            part.skip(f"{name}, {sharing}{mode[0]}", error)
            continue
        run = stats.latencies(latencies)
        found[sharing + mode[0]] = {"slowdown": run["p99_ms"] / p99, "share": rate / be_alone}
        part.row(**about, mode=sharing + mode[0], **found[sharing + mode[0]], **run, totals=totals, latencies_ms=latencies)
    return found


def judge(part, found):
    """The bounds, on the mean of the pairs at a load, and against what users have otherwise on each."""
    for load in sorted({load for load, _ in found}):
        runs = [run for at, run in found if at == load]
        for sharing, limits in (("mps", SLOWDOWN_MPS_MAX), ("timeslice", SLOWDOWN_TIMESLICE_MAX)):
            mine = [run for run in runs if f"{sharing}+pillion" in run]
            if not mine or load not in limits:
                continue
            mean = lambda what: sum(run[f"{sharing}+pillion"][what] for run in mine) / len(mine)  # noqa: E731
            spread = sum(run["spread"] for run in mine) / len(mine)
            part.bound(f"{sharing}, load {load}: HP p99, mean of pairs", mean("slowdown"), limits[load], "x", spread=spread)
            if sharing == "mps":
                part.bound(f"{sharing}, load {load}: BE share, mean of pairs", mean("share"), BE_SHARE_MIN, "", at_least=True)
            other = "mps+priority" if sharing == "mps" else "timeslice"
            for run in mine:
                if other in run:
                    part.bound(f"{run['name']}, load {load}: p99 below {other}", run[f"{sharing}+pillion"]["slowdown"],
                               run[other]["slowdown"], "x", spread=run["spread"])


def curve_seconds(seconds):
    """Of a point of the curve, whose requests are short and many."""
    return max(0.3, seconds / 7)


def curve(part, sharings):
    """The best-effort kernel length against p99, with and without Pillion: what protection is possible at all."""
    seconds, part.seconds = part.seconds, curve_seconds(part.seconds)
    try:
        told = alone(Synthetic(part), "hp", rate=0)
        hp = {"rate": 0.2 * 1e3 / stats.median(told["latencies_ms"])}
        solo = stats.latencies(alone(Synthetic(part), "hp", **hp)["latencies_ms"])
        part.row(curve="alone", rate=hp["rate"], **solo)
        for long_us in LENGTHS_QUICK_US if part.quick else LENGTHS_US:
            for sharing in sharings:
                for mode in (BARE, PILLION):
                    try:
                        latencies, rate, totals = together(part, Synthetic(part, long_us), sharing, mode, **hp)
                    except Failed as error:
                        part.skip(f"curve, {long_us} us, {sharing}{mode[0]}", error)
                        continue
                    run = stats.latencies(latencies)
                    part.row(curve=sharing + mode[0], kernel_us=long_us, slowdown=run["p99_ms"] / solo["p99_ms"],
                             be_busy=rate * long_us / 1e6, **run, totals=totals)
    finally:
        part.seconds = seconds


def more(parser):
    parser.add_argument("--pairs", metavar="'A + B',...", help="only these: synthetic, 'resnet50-inference + gpt-training', ...")
    parser.add_argument("--loads", metavar="L,...", help="only these: 0.2, 0.5")
    parser.add_argument("--arrivals", metavar="A,...", help="only these: poisson, bursts")
    parser.add_argument("--no-curve", action="store_true", help="leave the curve out")


if __name__ == "__main__":
    sys.exit(main("share", __doc__, measure, more))
