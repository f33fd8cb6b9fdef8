"""Power, SM clock, temperature and energy of a GPU over some seconds, from NVML. A program:
`python3 power.py UUID SETTLE SECONDS` waits for SETTLE s with NVML open, as a driver that was just
loaded draws more, then reads for SECONDS s. It prints one line of JSON with the readings, or
`error`.
"""

import ctypes
import json
import sys
import time

import gpu

# NVML renews its numbers some ten times a second.
INTERVAL_S = 0.05
SM_CLOCK, GPU_TEMPERATURE = 1, 0


def main():
    """Prints the readings."""
    try:
        print(json.dumps(read(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]))))
    except (OSError, AttributeError, RuntimeError) as error:
        print(json.dumps({"error": str(error)}))


def read(uuid, settle_s, seconds):
    """The readings of so many seconds, after a wait. `energy_w`, the mean power by the GPU's own energy counter,
    is None without such a counter (before Volta) or if it did not move."""
    nvml, call = gpu.opened()
    device, value, energy_mj = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_ulonglong()
    call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(device))

    def number(function, *arguments):
        call(function, device, *arguments, ctypes.byref(value))
        return value.value

    def energy():
        is_known = nvml.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(energy_mj)) == 0
        return energy_mj.value if is_known else None

    limit_w = number("nvmlDeviceGetEnforcedPowerLimit") / 1e3
    time.sleep(settle_s)
    power_w, clock_mhz, temperature_c = [], [], []
    began, before_mj = time.monotonic(), energy()
    while time.monotonic() < began + seconds or not power_w:
        power_w.append(number("nvmlDeviceGetPowerUsage") / 1e3)
        clock_mhz.append(number("nvmlDeviceGetClockInfo", SM_CLOCK))
        temperature_c.append(number("nvmlDeviceGetTemperature", GPU_TEMPERATURE))
        time.sleep(INTERVAL_S)
    after_mj, took_s = energy(), time.monotonic() - began
    used_mj = None if None in (before_mj, after_mj) else after_mj - before_mj
    return {"limit_w": limit_w, "power_w": power_w, "clock_mhz": clock_mhz, "temperature_c": temperature_c,
            "energy_w": used_mj / took_s / 1e3 if used_mj else None}


if __name__ == "__main__":
    sys.exit(main())
