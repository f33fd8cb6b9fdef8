"""The measurement that pilliond reads: whether priorities between blocks of different processes
work (scheduler/src/host/measured.rs).

Behind kernels that fill the device, a request waits for all kernels in front of it. If waiting
blocks of the greater priority go first, it waits only for the blocks that run, one wave of them.
"""

import json
import os
import time

SCHEMA_VERSION = 1
# Priorities count as working if they remove at least this share of a request's wait without them.
GAIN_MIN = 0.5
# Limit on the remaining wait, in waves: the one that runs, and half another for the host.
WAVES_MAX = 1.5


def works(alone_ms, without_ms, with_ms, wave_ms):
    """Whether priorities work, by medians, and why. None if undecided: the effect is visible only
    if a request is late without priorities."""
    late_ms, left_ms = without_ms - alone_ms, with_ms - alone_ms
    if late_ms < 2 * wave_ms:
        return None, f"a request is {late_ms:.2f} ms late without priorities, less than two waves of {wave_ms:.2f} ms: undecided"
    gain = 1 - left_ms / late_ms
    said = f"a request is {late_ms:.2f} ms late without priorities, {left_ms:.2f} ms with them"
    return gain >= GAIN_MIN and left_ms <= WAVES_MAX * wave_ms, said


def document(gpu, works, alone_ms, without_ms, with_ms):
    """The file's text."""
    major, minor = gpu["cuda"].split(".")
    values = {
        "schema_version": SCHEMA_VERSION, "uuid": gpu["uuid"], "cuda_driver": int(major) * 1000 + int(minor) * 10, "block_priority": works,
        "gpu": gpu["name"], "driver": gpu.get("driver", "?"), "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "alone_ms": round(alone_ms, 4), "without_ms": round(without_ms, 4), "with_ms": round(with_ms, 4),
    }
    # Strings, numbers and booleans are written alike in JSON and TOML.
    return "# Written by benches/gpu.\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def write(folder, uuid, text):
    """Write the file atomically, and return its path."""
    path = os.path.join(folder, f"{uuid.replace('/', '_')}.measured")
    with open(path + ".partial", "w") as file:
        file.write(text)
    os.replace(path + ".partial", path)
    return path
