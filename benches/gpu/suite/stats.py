"""Quantiles, spreads, and when a bound holds. No part computes these by itself."""

import math


def quantile(values, part):
    """Nearest rank: a value that did occur. None of no values."""
    if not values:
        return None
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, max(0, math.ceil(part * len(ranked)) - 1))]


def median(values):
    """The middle one; of an even number the lower of the two."""
    return quantile(values, 0.5)


def latencies(values_ms):
    """p50, p95 and p99 of a run, ms, with how many requests they are of."""
    named = {f"p{round(part * 100)}_ms": quantile(values_ms, part) for part in (0.5, 0.95, 0.99)}
    return {**named, "requests": len(values_ms)}


def spread(values):
    """Of repeated runs of the same: half the range, of the middle. 0 of fewer than two, as then
    nothing is known of it."""
    if len(values) < 2:
        return 0.0
    middle = median(values)
    return 0.0 if not middle else (max(values) - min(values)) / 2 / abs(middle)


def holds(value, limit, margin=0.0, at_least=False):
    """Whether `value` is within `limit` or beyond it by no more than `margin`, the spread of runs
    of the same."""
    if value is None:
        return None
    return value >= limit - margin if at_least else value <= limit + margin


def distance(left, right):
    """How far two runs of the same lie apart: the root mean square of how far their values do, each
    over its own size. One number for a run, however many values it has: of many values judged one
    by one some always stick out."""
    sizes = [max(abs(a), abs(b)) or 1.0 for a, b in zip(left, right)]
    squares = [((a - b) / size) ** 2 for a, b, size in zip(left, right, sizes)]
    return math.inf if len(left) != len(right) else math.sqrt(sum(squares) / max(1, len(squares)))


def is_like_runs(values, runs):
    """Whether a run lies no farther from the nearest of others than twice what the farthest two of
    these lie apart."""
    apart = max((distance(a, b) for index, a in enumerate(runs) for b in runs[:index]), default=0.0)
    return min(distance(values, run) for run in runs) <= 2 * apart


def poisson(rate, seconds, seed):
    """Times at which requests are due, s: the same for the same seed."""
    import random
    draw, due, times = random.Random(seed), 0.0, []
    while rate > 0:
        due += draw.expovariate(rate)
        if due >= seconds:
            break
        times.append(due)
    return times


def bursts(rate, seconds, seed, burst=8):
    """The same rate in bursts, as DISB has them: groups of `burst` requests, each at 10 times the
    rate, then silence."""
    import random
    draw, times = random.Random(seed), []
    start = 0.0
    while rate > 0 and start < seconds:
        due = start
        for _ in range(burst):
            due += draw.expovariate(rate * 10)
            if due < seconds:
                times.append(due)
        start = max(start + burst / rate, due)
    return times
