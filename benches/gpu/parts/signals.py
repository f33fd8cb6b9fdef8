#!/usr/bin/env python3
"""signals: terminate best-effort jobs that have work in flight, beside a high-priority job.

SIGTERM and SIGINT alternate, 50 times (3 with --quick), without MPS and with it. Each best-effort
process must die of the signal that it is sent. The high-priority process must continue: none of its
calls fails, no result is wrong, and its latencies are not disturbed. They are judged against those
beside best-effort jobs that start and exit as often without a signal (the control). A full run also
has a row with its latencies alone.
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
# p99 while jobs are terminated over p99 while they exit by themselves. `share` allows this ratio
# between a job beside another and alone.
SLOWDOWN_MAX = 1.25
RATE, SHORT_US, LONG_US = 100, 100, 10_000
# How long a best-effort process launches before its signal, and how long it may then take to die.
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
    """Run the experiment under one kind of sharing, in `left_s` seconds."""
    until = time.monotonic() + left_s
    times, controls = (TIMES_QUICK, CONTROLS_QUICK) if part.quick else (TIMES, CONTROLS)
    with part.site.daemon(sharing) as daemon:
        if not part.quick:
            part.row(sharing=sharing, what="alone", **while_ending(part, daemon, sharing, [None], until)["latencies"])
        control = while_ending(part, daemon, sharing, [0] * controls, time.monotonic() + left_s / 3)
        part.row(sharing=sharing, what="best-effort jobs exit by themselves", ended=control["ended"], failed=control["failed"],
                 **control["latencies"])
        numbers = [signal.SIGTERM if index % 2 == 0 else signal.SIGINT for index in range(times)]
        found = while_ending(part, daemon, sharing, numbers, until)
    part.bound(f"{sharing}: failures of the high-priority job", sum(run["failed"] is not None for run in (found, control)), 0, "times",
               of_hardware=False)
    part.bound(f"{sharing}: threads with a wrong result", found["threads_wrong"], 0, of_hardware=False)
    part.bound(f"{sharing}: best-effort exits with a wrong status", len(found["otherwise"]), 0, f"of {found['ended']}", of_hardware=False)
    p99, of_control = found["latencies"].get("p99_ms"), control["latencies"].get("p99_ms")
    part.bound(f"{sharing}: p99 over the control's p99", p99 / of_control if p99 and of_control else None,
               SLOWDOWN_MAX, "x", spread=control["spread"])
    part.row(sharing=sharing, what="best-effort jobs are terminated", **{key: found[key] for key in ("ended", "otherwise", "failed", "threads_wrong")},
             **found["latencies"])
    if found["ended"] < times:
        part.skip(f"{sharing}: {times - found['ended']} of {times} times", "no time left")


def while_ending(part, daemon, sharing, numbers, until):
    """Run the high-priority job while best-effort ones are ended by the signals `numbers`, one
    after the other (0: it exits by itself; None: no job, for 2 s at most). Stop at the time
    `until`, but not before two have ended. Return the high-priority job's results."""
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
            child.process.stdin.close()  # Ends the probe's requests.
            told = child.result(60)
        except (Failed, OSError) as error:
            failed = str(error)
    latencies_ms = told["latencies_ms"] if told else []
    # The spread of equal runs is estimated from the two halves of this one.
    halves = [stats.quantile(latencies_ms[:len(latencies_ms) // 2], 0.99), stats.quantile(latencies_ms[len(latencies_ms) // 2:], 0.99)]
    return {"ended": ended, "otherwise": otherwise, "failed": failed, "threads_wrong": told and told["threads_wrong"],
            "latencies": {**stats.latencies(latencies_ms), "max_ms": max(latencies_ms, default=None)} if told else {},
            "spread": stats.spread(halves) if None not in halves else 0.0}


def end_one(part, daemon, sharing, number):
    """Start a best-effort process, and send it a signal in the middle of its work or let it exit
    (0). Return its status."""
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
