#!/usr/bin/env python3
"""signals: best-effort jobs are ended while they have work in flight, again and again, beside a
high-priority job.

SIGTERM and SIGINT by turns, 50 times (3 with --quick), without MPS and with it. Each best-effort
process must die of the signal it was sent, and the high-priority one must go on: no call of its
fails, no result is wrong. Its latencies must not be those of a machine where something happened:
they are judged against those beside best-effort jobs that come and go as often, and end by
themselves (the control); in a full run those that it has alone are a row, too.
"""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from suite import stats
from suite.part import main
from suite.process import Child, Failed

TIMES, TIMES_QUICK = 50, 3
CONTROLS, CONTROLS_QUICK = 20, 2
# p99 while jobs are ended over that while they end by themselves: what `share` allows between a job
# alone and beside another.
SLOWDOWN_MAX = 1.25
RATE, SHORT_US, LONG_US = 100, 100, 10_000
# So long a best-effort process launches before it is ended, and so long it may take to die.
LAUNCHES_S, DIES_S = 0.15, 20.0


def measure(part):
    sharings, no_mps = part.site.sharings()
    if no_mps:
        part.skip("under MPS", no_mps)
    for index, sharing in enumerate(sharings):
        beside(part, sharing, (part.left_s - 3) / (len(sharings) - index))


def pulse(part, daemon, sharing, seconds):
    site = part.site
    argv = site.probe("pulse", "--us", SHORT_US, "--rate", RATE, "--seconds", seconds)
    return Child(site.pillion("high-priority", argv), site.env(sharing, PILLION_SOCKET=daemon.socket), "the high-priority job")


def beside(part, sharing, left_s):
    """In so many seconds."""
    until = time.monotonic() + left_s
    times, controls = (TIMES_QUICK, CONTROLS_QUICK) if part.quick else (TIMES, CONTROLS)
    with part.site.daemon(sharing) as daemon:
        if not part.quick:
            part.row(sharing=sharing, what="alone", **while_ending(part, daemon, sharing, [None], until)["latencies"])
        control = while_ending(part, daemon, sharing, [0] * controls, time.monotonic() + left_s / 3)
        part.row(sharing=sharing, what="they end by themselves", ended=control["ended"], failed=control["failed"],
                 **control["latencies"])
        numbers = [signal.SIGTERM if index % 2 == 0 else signal.SIGINT for index in range(times)]
        found = while_ending(part, daemon, sharing, numbers, until)
    part.bound(f"{sharing}: the high-priority job fails", sum(run["failed"] is not None for run in (found, control)), 0, "times",
               of_hardware=False)
    part.bound(f"{sharing}: threads with a wrong result", found["threads_wrong"], 0, of_hardware=False)
    part.bound(f"{sharing}: best-effort ends otherwise", len(found["otherwise"]), 0, f"of {found['ended']}", of_hardware=False)
    p99, of_control = found["latencies"].get("p99_ms"), control["latencies"].get("p99_ms")
    part.bound(f"{sharing}: p99 over that while they end by themselves", p99 / of_control if p99 and of_control else None,
               SLOWDOWN_MAX, "x", spread=control["spread"])
    part.row(sharing=sharing, what="they are ended", **{key: found[key] for key in ("ended", "otherwise", "failed", "threads_wrong")},
             **found["latencies"])
    if found["ended"] < times:
        part.skip(f"{sharing}: {times - found['ended']} of {times} times", "no time was left")


def while_ending(part, daemon, sharing, numbers, until):
    """What the high-priority job has while best-effort ones are ended by these signals, one after
    the other (0: by themselves; None: there is none, for a while), until a time; two are ended
    whatever the time."""
    ended, otherwise, told, failed = 0, [], None, None
    with pulse(part, daemon, sharing, 1e6) as child:
        child.wait_until_ready()
        child.begin()
        for number in numbers:
            if time.monotonic() > until and ended >= 2:
                break
            if number is None:
                time.sleep(min(2.0, part.seconds))
                continue
            status = end_one(part, daemon, sharing, number)
            ended += 1
            if status != -number:
                otherwise.append({"sent": int(number), "status": status})
        try:
            child.process.stdin.close()  # Enough.
            told = child.result(60)
        except (Failed, OSError) as error:
            failed = str(error)
    latencies_ms = told["latencies_ms"] if told else []
    # How far two of the same lie apart: here its halves.
    halves = [stats.quantile(latencies_ms[:len(latencies_ms) // 2], 0.99), stats.quantile(latencies_ms[len(latencies_ms) // 2:], 0.99)]
    return {"ended": ended, "otherwise": otherwise, "failed": failed, "threads_wrong": told and told["threads_wrong"],
            "latencies": {**stats.latencies(latencies_ms), "max_ms": max(latencies_ms, default=None)} if told else {},
            "spread": stats.spread(halves) if None not in halves else 0.0}


def end_one(part, daemon, sharing, number):
    """Starts a best-effort process, ends it in the middle of its work, or by itself; its status."""
    site = part.site
    argv = site.pillion("best-effort", site.spinner("--us", LONG_US, "--depth", 4))
    with Child(argv, site.env(sharing, PILLION_SOCKET=daemon.socket), "a best-effort job") as child:
        child.wait_until_ready()
        child.begin()
        time.sleep(LAUNCHES_S)
        if number == 0:
            return child.let_end(DIES_S)
        os.kill(child.pid, number)
        until = time.monotonic() + DIES_S
        while child.process.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        return child.process.poll()


if __name__ == "__main__":
    sys.exit(main("signals", __doc__, measure))
