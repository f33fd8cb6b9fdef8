#!/usr/bin/env python3
"""streams: the order between CUDA streams on which interpose/src/progress/sight.rs relies
(probes/streams.c).

Rows: with a kernel of 20 ms in one stream, how soon an event in another stream is complete. Queues:
each of 2 to 128 streams in turn gets a kernel of 5 ms, and behind it nothing, a kernel or an event;
the probe counts the late kernels of the other streams. Streams that share a hardware queue wait for
a kernel that waits for its turn; on an H200 none waits for an event. Depth: how many launches a
stream accepts. Without and with MPS.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from suite.part import main
from suite.process import Child, Failed

# Hardware queues of a context (CUDA_DEVICE_MAX_CONNECTIONS): the driver's default, and one.
CONNECTIONS = (None, "1")


def measure(part):
    sharings, no_mps = part.site.sharings()
    if no_mps:
        part.skip("under MPS", no_mps)
    for sharing in sharings:
        for connections in CONNECTIONS[:1] if part.quick else CONNECTIONS:
            about = f"{sharing}, {connections or 'default'} connections"
            try:
                judge(part, about, told(part, sharing, connections))
            except Failed as error:
                part.bound(f"{about}: measurement", 1, 0, "failed", of_hardware=False)
                part.row(where=about, failed=str(error))


def told(part, sharing, connections):
    site = part.site
    more = {"CUDA_DEVICE_MAX_CONNECTIONS": connections} if connections else {}
    # On a software GPU each operation takes time of the host, so use fewer streams.
    with Child(site.probe("streams", "--most", 9 if site.is_software else 128), site.env(sharing, **more)) as child:
        child.wait_until_ready()
        child.begin()
        return child.result(part.patience_s(60.0))


def judge(part, about, found):
    part.row(where=about, rows=found["rows"], depth=found["depth"])
    for shared in found["shared"]:
        part.row(where=about, **shared)
    part.bound(f"{about}: rows that do not hold", sum(not row["holds"] for row in found["rows"]), 0, "rows")
    behind = sum(shared["late_pairs"] for shared in found["shared"] if shared["behind_it"] == "event")
    part.bound(f"{about}: kernels late behind an event of another stream", behind, 0, "pairs")


if __name__ == "__main__":
    sys.exit(main("streams", __doc__, measure))
