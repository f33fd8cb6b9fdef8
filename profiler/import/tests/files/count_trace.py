#!/usr/bin/env python3
"""Counts the kernels of a PyTorch trace without the importer, for the tests.

Usage: count_trace.py TRACE FOLDER_OF_occupancy_reference.py

Writes a JSON list, one object per kernel and shape.
"""
import gzip
import json
import sys

trace, folder = sys.argv[1:]
sys.path.insert(0, folder)
import occupancy_reference as occupancy  # noqa: E402

data = open(trace, "rb").read()
data = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
properties = data.get("deviceProperties") or data.get("computeProperties") or []
properties = {p["id"]: p for p in properties}
groups = {}
for event in data["traceEvents"]:
    if event.get("ph") != "X" or str(event.get("cat", "")).lower() != "kernel":
        continue
    args = event["args"]
    key = "%s|%d,%d,%d|%d,%d,%d|%d" % (
        (event["name"].strip(),) + tuple(args["grid"]) + tuple(args["block"]) + (args["shared memory"],)
    )
    groups.setdefault(key, []).append(event)

out = []
for key, events in groups.items():
    args = events[0]["args"]
    times = sorted(round(event["dur"] * 1000) for event in events)
    blocks = args["grid"][0] * args["grid"][1] * args["grid"][2]
    row = {"key": key, "count": len(events), "sum_ns": sum(times), "registers": args["registers per thread"]}
    device = properties.get(args["device"])
    if device:
        major = device.get("computeMajor", device.get("major"))
        minor = device.get("computeMinor", device.get("minor"))
        limits = occupancy.block_limits(
            "%d.%d" % (major, minor),
            args["block"][0] * args["block"][1] * args["block"][2],
            args["registers per thread"],
            args["shared memory"] + (1024 if major >= 8 else 0),
        )
        row["blocks_per_sm"] = min(limits)
        row["sm_needed"] = occupancy.sms_needed(blocks, limits)
    out.append(row)
json.dump(out, sys.stdout)
