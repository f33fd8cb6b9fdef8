"""What pilliond reads of what was measured: whether priorities between blocks of different
processes work (scheduler/src/host/measured.rs).

A request waits, behind kernels that fill the device, for those in front of it; where waiting blocks
of the greater priority go first it waits for the blocks that run, one wave of them.
"""

import json
import os
import time

SCHEMA_VERSION = 1
# Of what a request waits for without priorities they must take away so much to count as working.
GAIN_MIN = 0.5
# The rest must be no more than so many waves: the one that runs, and half another for the host.
WAVES_MAX = 1.5


def works(alone_ms, without_ms, with_ms, wave_ms):
    """Whether they work, by medians, and why; None where nothing follows: a request must be late
    without them to be less so with them."""
    late_ms, left_ms = without_ms - alone_ms, with_ms - alone_ms
    if late_ms < 2 * wave_ms:
        return None, f"a request is {late_ms:.2f} ms late without priorities, less than two waves of {wave_ms:.2f} ms: nothing to see"
    gain = 1 - left_ms / late_ms
    said = f"of {late_ms:.2f} ms that a request is late without priorities {left_ms:.2f} ms are left with them"
    return gain >= GAIN_MIN and left_ms <= WAVES_MAX * wave_ms, said


def document(gpu, works, alone_ms, without_ms, with_ms):
    """The file's text."""
    major, minor = gpu["cuda"].split(".")
    values = {
        "schema_version": SCHEMA_VERSION, "uuid": gpu["uuid"], "cuda_driver": int(major) * 1000 + int(minor) * 10, "block_priority": works,
        "gpu": gpu["name"], "driver": gpu.get("driver", "?"), "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "alone_ms": round(alone_ms, 4), "without_ms": round(without_ms, 4), "with_ms": round(with_ms, 4),
    }
    # A text, a number and a flag of JSON are the same in TOML.
    return "# Written by benches/gpu.\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def write(folder, uuid, text):
    """Writes it, whole at any moment; its path."""
    path = os.path.join(folder, f"{uuid.replace('/', '_')}.measured")
    with open(path + ".partial", "w") as file:
        file.write(text)
    os.replace(path + ".partial", path)
    return path
