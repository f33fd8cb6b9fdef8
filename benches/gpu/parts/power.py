#!/usr/bin/env python3
"""power: power, SM clock and temperature of the GPU in five states, beside the model's.

The states: idle; with a context that launches nothing; with kernels that compute; with kernels that
move memory; and with kernels that compute in half of the time. The kernels fill the GPU. The model
is the governor of docs/model.md ("Clock, power and heat"), with the limit that NVML reports and the
peaks of the device table, and is left out for a board that this table lacks.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import share
from suite.part import main
from suite.process import Child, Failed, run
from suite.site import SUITE

# How far the model may be off, either way.
POWER_ERROR_MAX, CLOCK_ERROR_MAX = 1.25, 1.10
# Seconds of readings, and before them: some GPUs report the mean power of the last second, and
# temperature follows load within a minute.
READ_S, READ_QUICK_S, SETTLE_S, SETTLE_QUICK_S = 10.0, 1.0, 15.0, 1.5
# Time for the program that reads to start and to open NVML.
NVML_S = 1.5
# A request is ten kernels of 1 ms.
KERNEL_US, KERNELS = 1_000, 10
HALF = 0.5
# Shares of the peak throughput and of the peak bandwidth that the kernels use, as the model has
# them.
DEMANDS = {"compute": (0.9, 0.01), "memory": (0.1, 0.9)}
# The governor's law: power without work over board power, weights of computing and of moving
# memory, and uncapped power at full load over board power, of small boards and of others.
REST, WEIGHTS, SMALL, KAPPA = 0.15, (0.6, 0.4), ("T4", "L4", "A10"), (1.6, 1.1)
TDP_W, IDLE_W, MAX_CLOCK_MHZ, NAME = 15, 16, 11, 0


def measure(part):
    device = table_row(part)
    if device is None:
        part.skip("the model", f"the device table has no {part.site.gpu['name']}")
    else:
        part.row(device=device[NAME], tdp_w=int(device[TDP_W]), idle_w=device[IDLE_W] or None, max_clock_mhz=int(device[MAX_CLOCK_MHZ]))
    try:
        idle(part, device)
    except Failed as error:
        part.skip("power", error)
        return
    states = [("compute", "compute", None), ("memory", "memory", None), ("half", "compute", HALF * 1e6 / (KERNEL_US * KERNELS))]
    calibrated = {}
    for state, kind, rate in states:
        try:
            if kind not in calibrated:
                calibrated[kind] = calibrate(part, kind)
            if state == "compute":
                context(part, device, calibrated[kind])
            loaded(part, device, state, kind, rate, calibrated[kind])
        except Failed as error:
            part.skip(state, error)


def table_row(part):
    """This board's row of the device table; None without one."""
    name = plain(part.site.gpu["name"])
    with open(part.site.program("gpus.csv")) as file:
        rows = [line.strip().split(",") for line in file if not line.startswith("#")]
    return next((row for row in rows if plain(row[NAME]) == name), None)


def plain(name):
    """A board's name without its brand: `NVIDIA A100-SXM4-40GB` and `A100-SXM4-40GB` are one."""
    words = name.upper().replace("-", " ").split()
    return " ".join(word for word in words if word not in ("NVIDIA", "TESLA", "GEFORCE"))


def idle(part, device):
    """No process of the suite has a context. The parts before it may have heated the GPU."""
    found = readings(part, SETTLE_QUICK_S)
    watts = float(device[IDLE_W]) if device and device[IDLE_W] else None
    row(part, "idle", found, watts, None, 0.0)
    judge(part, "idle: power of the device table", watts, found["power_w"], POWER_ERROR_MAX)


def context(part, device, folder):
    """A process with a context and loaded kernels, before its first launch."""
    with Child(replay(part, folder, None), part.site.env("timeslice"), "replay, waiting") as child:
        child.wait_until_ready(part.patience_s(60))
        found = readings(part)
    watts, _ = model(device, found["limit_w"], 0.0, 0.0)
    row(part, "context", found, watts, None, 0.0)
    judge(part, "context: power of the model", watts, found["power_w"], POWER_ERROR_MAX)


def loaded(part, device, state, kind, rate, folder):
    """While a replay launches its kernels, at a rate or without pause."""
    with Child(replay(part, folder, rate), part.site.env("timeslice"), f"replay, {state}") as child:
        child.wait_until_ready(part.patience_s(60))
        child.begin()
        found = readings(part)
        report = child.result(part.patience_s(60))
    if report["checks_wrong"] or report["launches_told"] != report["launches"]:
        raise Failed(f"the kernels computed wrong results or counted {report['launches_told']} of {report['launches']} launches")
    with open(os.path.join(folder, "calibration.json")) as file:
        kernel_ms = json.load(file)["request_measured_ns"] / KERNELS / 1e6
    busy = min(1.0, report["launches"] * kernel_ms / report["elapsed_ms"])
    watts, mhz = model(device, found["limit_w"], *(busy * demand for demand in DEMANDS[kind]))
    row(part, state, found, watts, mhz, busy)
    judge(part, f"{state}: power of the model", watts, found["power_w"], POWER_ERROR_MAX)
    judge(part, f"{state}: clock of the model", mhz, found["clock_mhz"], CLOCK_ERROR_MAX)


def judge(part, what, expected, readings, limit):
    why = None if expected else "neither the device table nor the model has this"
    part.bound(f"{what}, off by", off(expected, mean(readings)), limit, "x", why=why)


def row(part, state, found, watts, mhz, busy):
    part.row(state=state, busy=busy, power_w=mean(found["power_w"]), model_w=watts, energy_w=found["energy_w"],
             clock_mhz=mean(found["clock_mhz"]), model_mhz=mhz, temperature_c=mean(found["temperature_c"]),
             limit_w=found["limit_w"], readings=found)


def seconds(part):
    """Seconds to settle, and of readings."""
    return (SETTLE_QUICK_S, READ_QUICK_S) if part.quick else (SETTLE_S, READ_S)


def readings(part, more_s=0.0):
    """NVML's numbers, once the state has settled."""
    settle_s, read_s = seconds(part)
    settle_s += more_s
    argv = [sys.executable, os.path.join(SUITE, "power.py"), part.site.gpu["uuid"], str(settle_s), str(read_s)]
    _, text, _ = run(argv, part.site.env("timeslice"), settle_s + read_s + part.patience_s(20))
    found = json.loads(text)
    if "error" in found:
        raise Failed(f"NVML reports no power or clock: {found['error']}")
    return found


def calibrate(part, kind):
    """The folder with the calibrated trace of kernels of that kind."""
    site, sms = part.site, part.site.gpu["sms"]
    compute, bandwidth = DEMANDS[kind]
    text = share.trace(sms, KERNEL_US, KERNELS).replace("class=compute", f"class={kind}").replace("pillion_compute", f"pillion_{kind}")
    text = text.replace("compute_demand=0.9 bandwidth_demand=0.01", f"compute_demand={compute} bandwidth_demand={bandwidth}")
    trace, folder = site.path(f"{kind}.trace"), site.path(f"{kind}-calibrated")
    os.makedirs(folder, exist_ok=True)
    with open(trace, "w") as file:
        file.write(text)
    run([site.program("pillion-replay"), "--trace", trace, "--calibrate", folder], site.env("timeslice"), part.patience_s(60))
    return folder


def replay(part, folder, rate):
    """The command that launches a calibrated trace's kernels, without pause or at a rate."""
    lasts_s = sum(seconds(part)) + NVML_S
    arrivals = ["--arrivals", "uniform", "--rate", str(rate)] if rate else ["--arrivals", "closed"]
    return [part.site.program("pillion-replay"), "--calibrated", folder, "--hold", "--seconds", str(lasts_s), "--input-bytes", "4",
            "--output-bytes", "4", "--check-every", "0", *arrivals]


def model(device, limit_w, compute, memory):
    """Power, W, and SM clock, MHz, of the governor in the steady state, with these shares of the
    time at full throughput and at full bandwidth: the highest clock at which power is within the
    limit. Heat is left out. None for both without a device, or with a limit below the power at
    rest."""
    if device is None or limit_w <= REST * float(device[TDP_W]):
        return None, None
    tdp_w, top_mhz = float(device[TDP_W]), float(device[MAX_CLOCK_MHZ])
    rest_w = REST * tdp_w
    kappa = KAPPA[0] if device[NAME] in SMALL else KAPPA[1]
    dynamic_w = (kappa * tdp_w - rest_w) * (WEIGHTS[0] * compute + WEIGHTS[1] * memory)
    if rest_w + dynamic_w <= limit_w:
        return rest_w + dynamic_w, top_mhz
    return limit_w, top_mhz * ((limit_w - rest_w) / dynamic_w) ** (1 / 3)


def off(model, measured):
    """The larger of two numbers over the smaller; None if one is unknown."""
    return None if not model or not measured else max(model / measured, measured / model)


def mean(values):
    """A reading may be of a moment between two kernels, so single ones say little."""
    return sum(values) / len(values)


if __name__ == "__main__":
    sys.exit(main("power", __doc__, measure))
