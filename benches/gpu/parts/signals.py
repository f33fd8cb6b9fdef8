#!/usr/bin/env python3
"""signals: best-effort jobs are ended while they have work in flight, again and again, beside a high-priority job.

SIGTERM and SIGINT by turns, 50 times (6 with --quick), without MPS and with it. Each best-effort process must die of the signal it
was sent, and the high-priority one must go on: no call of its fails, no result is wrong. Its latencies are set beside those
that it has alone.
"""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from suite import stats
from suite.part import main
from suite.process import Child, Failed

TIMES, TIMES_QUICK = 50, 6
RATE, SHORT_US, LONG_US = 100, 100, 10_000
# So long a best-effort process launches before it is ended, and so long it may take to die.
LAUNCHES_S, DIES_S = 0.15, 20.0


def measure(part):
    sharings, no_mps = part.site.sharings()
    if no_mps:
        part.skip("under MPS", no_mps)
    for sharing in sharings:
        beside(part, sharing)


def pulse(part, daemon, sharing, seconds):
    site = part.site
    argv = site.probe("pulse", "--us", SHORT_US, "--rate", RATE, "--seconds", seconds)
    return Child(site.pillion("high-priority", argv), site.env(sharing, PILLION_SOCKET=daemon.socket), "the high-priority job")


def beside(part, sharing):
    times = TIMES_QUICK if part.quick else TIMES
    seconds = max(2.0, (part.left_s - 5) / (2 if sharing == "timeslice" else 1) - 5)
    with part.site.daemon(sharing) as daemon:
        with pulse(part, daemon, sharing, min(2.0, part.seconds)) as child:
            child.wait_until_ready()
            child.begin()
            alone = stats.latencies(child.result(60)["latencies_ms"])
        with pulse(part, daemon, sharing, min(seconds, times * 3.0)) as child:
            child.wait_until_ready()
            child.begin()
            until = time.monotonic() + min(seconds, times * 3.0) - 2.0
            ended, otherwise = 0, []
            while ended < times and (time.monotonic() < until or ended < 2):
                number = signal.SIGTERM if ended % 2 == 0 else signal.SIGINT
                status = end_one(part, daemon, sharing, number)
                ended += 1
                if status != -number:
                    otherwise.append({"sent": int(number), "status": status})
            told, failed = None, None
            try:
                child.process.stdin.close()  # Enough.
                told = child.result(seconds + 60)
            except Failed as error:
                failed = str(error)
    found = stats.latencies(told["latencies_ms"]) if told else {}
    part.row(sharing=sharing, ended=ended, otherwise=otherwise, failed=failed, alone=alone,
             threads_wrong=told and told["threads_wrong"], **found)
    part.bound(f"{sharing}: the high-priority job fails", int(failed is not None), 0, "times", of_hardware=False)
    part.bound(f"{sharing}: threads with a wrong result", told["threads_wrong"] if told else None, 0, of_hardware=False)
    part.bound(f"{sharing}: best-effort ends otherwise", len(otherwise), 0, f"of {ended}", of_hardware=False)
    if ended < times:
        part.skip(f"{sharing}: {times - ended} of {times} times", "no time was left")


def end_one(part, daemon, sharing, number):
    """Starts a best-effort process, ends it in the middle of its work; its status."""
    site = part.site
    argv = site.pillion("best-effort", site.spinner("--us", LONG_US, "--depth", 4))
    with Child(argv, site.env(sharing, PILLION_SOCKET=daemon.socket), "a best-effort job") as child:
        child.wait_until_ready()
        child.begin()
        time.sleep(LAUNCHES_S)
        os.kill(child.pid, number)
        until = time.monotonic() + DIES_S
        while child.process.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        return child.process.poll()


if __name__ == "__main__":
    sys.exit(main("signals", __doc__, measure))
