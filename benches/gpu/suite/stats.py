"""Quantiles, spreads, and when a bound holds, for all parts."""

import math


def quantile(values, part):
    """The nearest-rank quantile, which is one of the values. None if there are no values."""
    if not values:
        return None
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, max(0, math.ceil(part * len(ranked)) - 1))]


def median(values):
    """The middle value; for an even number, the lower of the two."""
    return quantile(values, 0.5)


def latencies(values_ms):
    """p50, p95 and p99 of a run, ms, and the number of requests."""
    named = {f"p{round(part * 100)}_ms": quantile(values_ms, part) for part in (0.5, 0.95, 0.99)}
    return {**named, "requests": len(values_ms)}


def spread(values):
    """The spread of repeated runs: half the range over the median. 0 for fewer than two runs,
    whose spread is unknown."""
    if len(values) < 2:
        return 0.0
    middle = median(values)
    return 0.0 if not middle else (max(values) - min(values)) / 2 / abs(middle)


def holds(value, limit, margin=0.0, at_least=False):
    """Whether `value` is within `limit`, or beyond it by at most `margin`, the spread of repeated
    runs."""
    if value is None:
        return None
    return value >= limit - margin if at_least else value <= limit + margin


def distance(left, right):
    """The distance of two runs of a program: the root mean square of the relative differences of
    their values. One number for a run, however many values it has: if many values were judged one
    by one, some would always be outliers."""
    sizes = [max(abs(a), abs(b)) or 1.0 for a, b in zip(left, right)]
    squares = [((a - b) / size) ** 2 for a, b, size in zip(left, right, sizes)]
    return math.inf if len(left) != len(right) else math.sqrt(sum(squares) / max(1, len(squares)))


def is_like_runs(values, runs):
    """Whether a run's distance to the nearest of `runs` is at most twice the largest distance
    between two of these."""
    apart = max((distance(a, b) for index, a in enumerate(runs) for b in runs[:index]), default=0.0)
    return min(distance(values, run) for run in runs) <= 2 * apart


def poisson(rate, seconds, seed):
    """Poisson arrival times of requests, s; the same for the same seed."""
    import random
    draw, due, times = random.Random(seed), 0.0, []
    while rate > 0:
        due += draw.expovariate(rate)
        if due >= seconds:
            break
        times.append(due)
    return times


def bursts(rate, seconds, seed, burst=8):
    """Arrival times at the same rate in bursts, as in DISB: `burst` requests at 10 times the rate,
    then a pause."""
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
