#!/usr/bin/env python3
"""Counts the kernels of an nsys SQLite export without the importer, for the tests.

Usage: count_nsys.py EXPORT FOLDER_OF_occupancy_reference.py

Writes a JSON list, one object per kernel and shape.
"""
import json
import sqlite3
import statistics
import sys

export, folder = sys.argv[1:]
sys.path.insert(0, folder)
import occupancy_reference as occupancy  # noqa: E402

db = sqlite3.connect("file:%s?immutable=1" % export, uri=True)
db.row_factory = sqlite3.Row
major, minor = db.execute("SELECT computeMajor, computeMinor FROM TARGET_INFO_GPU").fetchone()
capability = "%d.%d" % (major, minor)
driver = 1024 if major >= 8 else 0
groups = {}
for row in db.execute(
    "SELECT k.*, k.'end' - k.start AS ns, s.value AS name FROM CUPTI_ACTIVITY_KIND_KERNEL k"
    " JOIN StringIds s ON s.id = k.demangledName ORDER BY k.start"
):
    grid = (row["gridX"], row["gridY"], row["gridZ"])
    block = (row["blockX"], row["blockY"], row["blockZ"])
    key = "%s|%d,%d,%d|%d,%d,%d|%d" % ((row["name"].strip(),) + grid + block + (row["dynamicSharedMemory"],))
    groups.setdefault(key, []).append(row)

out = []
for key, rows in groups.items():
    first = rows[0]
    times = sorted(row["ns"] for row in rows)
    median = times[(len(times) + 1) // 2 - 1]
    if len(times) >= 5:  # outliers are left out of the median
        times_usual = [t for t in times if t <= 5 * median]
        median = times_usual[(len(times_usual) + 1) // 2 - 1]
    blocks = first["gridX"] * first["gridY"] * first["gridZ"]
    limits = occupancy.block_limits(
        capability,
        first["blockX"] * first["blockY"] * first["blockZ"],
        first["registersPerThread"],
        first["staticSharedMemory"] + first["dynamicSharedMemory"] + driver,
        first["sharedMemoryExecuted"],
    )
    out.append(
        {
            "key": key,
            "count": len(rows),
            "sum_ns": sum(times),
            "median_ns": median,
            "registers": first["registersPerThread"],
            "static_shared_bytes": first["staticSharedMemory"],
            "blocks_per_sm": min(limits),
            "sm_needed": occupancy.sms_needed(blocks, limits),
        }
    )
json.dump(out, sys.stdout)
