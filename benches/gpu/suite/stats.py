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
    """Of repeated runs of the same: half the range, of the middle. 0 of fewer than two, as then nothing is known of it."""
    if len(values) < 2:
        return 0.0
    middle = median(values)
    return 0.0 if not middle else (max(values) - min(values)) / 2 / abs(middle)


def holds(value, limit, margin=0.0, at_least=False):
    """Whether `value` is within `limit` or beyond it by no more than `margin`, the spread of runs of the same."""
    if value is None:
        return None
    return value >= limit - margin if at_least else value <= limit + margin


def is_within_runs(value, runs):
    """Whether a value lies no farther outside what runs of the same gave than these lie apart."""
    width = max(runs) - min(runs)
    return min(runs) - width <= value <= max(runs) + width


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
    """The same rate in bursts, as DISB has them: groups of `burst` requests, each at 10 times the rate, then silence."""
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
