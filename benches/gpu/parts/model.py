#!/usr/bin/env python3
"""model: the error of the simulator, on the experiments of `share` with durations measured here.

The curve's kernels last as long as the part requested; jobs of PyTorch launch a request of their
profile. Needs the documents of `share` (and of `profile`) in the folder of the results. An error is
the model's slowdown of p99 over the measured one.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import share
from suite import stats
from suite.part import main
from suite.process import Failed, run

# The simulator's name for each mode that was measured.
POLICY = {"mps": "mps", "mps+priority": "mps-priority", "mps+pillion": "pillion", "timeslice": "none", "timeslice+pillion": "pillion"}
# Shares of the device's compute and bandwidth that kernels of a class use, as Orion measured them;
# the profile of a trace does not have them.
DEMANDS = {"compute": (0.89, 0.20), "memory": (0.14, 0.80), "unknown": (0.5, 0.4)}
SEED = 1
# Columns of the device table (devices/gpus.csv).
NAME, CAPABILITY, SMS, MEMORY = 0, 1, 2, 9


def measure(part):
    path = os.path.join(part.options.beside or ".", "share.json")
    if not os.path.exists(path):
        part.skip("every experiment", f"no {path}: run share first, into the same --out")
        return
    with open(path) as file:
        document = json.load(file)
    rows, part.seconds = document["rows"], document["seconds_per_mode"]
    device = model_of(part)
    errors = curve(part, rows, device) + pairs(part, rows, device)
    if errors:
        part.row(errors=len(errors), median_error=stats.median(errors), worst=max(errors, key=lambda error: abs(error - 1)))


def model_of(part):
    """The name of the device model: that of the table with the same capability and number of SMs
    and the nearest memory size. If there is none, report it and take the nearest of all."""
    gpu = part.site.gpu
    with open(part.site.program("gpus.csv")) as file:
        rows = [line.split(",") for line in file if not line.startswith("#")]
    same = [row for row in rows if row[CAPABILITY] == gpu["compute_capability"] and int(row[SMS]) == gpu["sms"]]
    if not same:
        part.skip(f"a model of {gpu['name']}", "the device table has none with this compute capability and number of SMs: using the nearest")
    return min(same or rows, key=lambda row: (abs(int(row[SMS]) - gpu["sms"]), abs(int(row[MEMORY]) - gpu["memory_bytes"])))[NAME]


def simulated(part, device, mode, hp, be, rate, seconds):
    """Simulate a pair: p99 and the best-effort rate, each over that alone."""
    sharing = mode.split("+")[0]
    argv = [part.site.program("pillion"), "simulate", "--device", device, "--hp", hp, "--be", be, "--policy", POLICY[mode],
            "--sharing", sharing, "--hp-rate", f"{rate:.4f}", "--seconds", f"{seconds:.3f}", "--seeds", str(SEED), "--json"]
    _, text, _ = run(argv, part.site.env("timeslice"), 120)
    told = json.loads(text.strip().split("\n")[0])
    if None in (told["hp"]["p99_ms"], told["hp"]["solo_p99_ms"]):
        raise Failed(f"no request completes in the model in {seconds:.1f} s under {mode}")
    return told["hp"]["p99_ms"] / told["hp"]["solo_p99_ms"], told["be"][0]["per_s"] / told["be"][0]["solo_per_s"]


def curve(part, rows, device):
    """Simulate each measured point of the curve; return the errors."""
    errors = []
    alone = next((row for row in rows if row.get("curve") == "alone"), None)
    if alone is None:
        part.skip("the curve", "share measured none")
        return errors
    sms = part.site.gpu["sms"]
    hp = written(part, "pulse", share.trace(sms, share.SHORT_US, share.KERNELS, device))
    for row in rows:
        if row.get("curve") not in POLICY:
            continue
        be = written(part, f"spin-{row['kernel_us']}", share.trace(sms, row["kernel_us"], 1, device))
        try:
            slowdown, _ = simulated(part, device, row["curve"], hp, be, alone["rate"], share.curve_seconds(part.seconds))
        except Failed as error:
            part.skip(f"curve, {row['kernel_us']} us, {row['curve']}", error)
            continue
        errors.append(slowdown / row["slowdown"])
        part.row(curve=row["curve"], kernel_us=row["kernel_us"], measured=row["slowdown"], model=slowdown, error=errors[-1])
    return errors


def pairs(part, rows, device):
    """Simulate each measured pair of PyTorch programs whose profiles have the launches of a
    request; return the errors."""
    errors, rates = [], {}
    for row in rows:
        if "pair" not in row or "mode" not in row or row["pair"] == "synthetic":
            continue
        key = (row["pair"], row["load"], row["arrivals"])
        if row["mode"] == "alone":
            rates[key] = row["rate"]
        elif row["mode"] in POLICY and row["arrivals"] == "poisson" and key in rates:
            try:
                hp, be = (as_trace(part, name, device) for name in row["pair"].split(" + "))
                slowdown, progress = simulated(part, device, row["mode"], hp, be, rates[key], part.seconds)
            except Failed as error:
                part.skip(f"{row['pair']}, {row['mode']}", error)
                continue
            errors.append(slowdown / row["slowdown"])
            part.row(pair=row["pair"], load=row["load"], mode=row["mode"], measured=row["slowdown"], model=slowdown,
                     share_measured=row["share"], share_model=progress, error=errors[-1])
    return errors


def as_trace(part, name, device):
    """Write the most frequent request of a profile as a trace; return its path."""
    try:
        import tomllib
    except ImportError as error:
        raise Failed("this needs Python 3.11 or newer, to read a profile") from error
    path = os.path.join(part.options.beside, "profiles", f"{name}.profile.toml")
    if not os.path.exists(path):
        raise Failed(f"no profile of {name}: run profile first, into the same --out")
    with open(path, "rb") as file:
        profile = tomllib.load(file)
    order = profile.get("requests", {}).get("order")
    if not order:
        raise Failed(f"the profile of {name} has no launches of a request")
    return written(part, name, trace_of(profile, order, device))


def trace_of(profile, order, device):
    """The text of a trace with the launches in `order`. Kernels that these do not use are left
    out."""
    used = sorted({index for index, _ in order})
    lines = ["pillion-trace 1", f"device {device}"]
    sms = profile.get("measured", {}).get("sms", 100)
    for number, index in enumerate(used):
        kernel = profile["kernel"][index]
        duration = max(1, kernel["duration_ns"]["median"])
        waves = max(1, -(-kernel["sm_needed"] // sms))
        compute, bandwidth = DEMANDS[kernel["class"]]
        grid, block = (",".join(str(max(1, size)) for size in kernel[key]) for key in ("grid", "block"))
        lines.append(f"kernel class={kernel['class']} grid={grid} block={block} shared_bytes={kernel['shared_bytes']} "
                     f"registers={kernel['registers']} sm_needed={kernel['sm_needed']} block_ns={max(1, duration // waves)} "
                     f"duration_ns={duration} compute_demand={compute} bandwidth_demand={bandwidth} "
                     f'source="kernel {index}" name="kernel {number}"')
    return "\n".join(lines + [f"launch {used.index(index)} x{times}" for index, times in order]) + "\n"


def written(part, name, text):
    path = part.site.path(f"model-{name}.trace")
    with open(path, "w") as file:
        file.write(text)
    return path


if __name__ == "__main__":
    sys.exit(main("model", __doc__, measure))
