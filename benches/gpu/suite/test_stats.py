"""The suite's statistics. Run this with
`python3 -m unittest discover benches/gpu/suite -t benches/gpu`."""

import random
import unittest

from suite import stats


class Stats(unittest.TestCase):
    def test_quantiles_are_values_that_occurred(self):
        values = [float(value) for value in range(100, 0, -1)]
        self.assertEqual([stats.quantile(values, part) for part in (0.0, 0.5, 0.95, 0.99, 1.0)], [1, 50, 95, 99, 100])
        self.assertEqual(stats.quantile([7.0], 0.99), 7.0)
        self.assertIsNone(stats.quantile([], 0.5))

    def test_the_spread_is_half_the_range_of_the_middle(self):
        self.assertAlmostEqual(stats.spread([9.0, 10.0, 12.0]), 0.15)
        self.assertEqual(stats.spread([5.0]), 0.0)

    def test_a_bound_holds_to_its_limit_and_by_the_spread_beyond(self):
        self.assertTrue(stats.holds(1.1, 1.1))
        self.assertFalse(stats.holds(1.11, 1.1))
        self.assertTrue(stats.holds(1.11, 1.1, margin=0.02))
        self.assertTrue(stats.holds(0.45, 0.45, at_least=True))
        self.assertFalse(stats.holds(0.42, 0.45, margin=0.01, at_least=True))
        self.assertIsNone(stats.holds(None, 1))

    def test_runs_of_the_same_that_differ_are_alike(self):
        """`harmless` judges programs so whose results are not bitwise equal, with as many runs. At
        most one false alarm in a hundred runs, however many values a run has; a run with a hundred
        times the noise is found."""
        draw, trials = random.Random(7), 1000
        for values, runs in ((1, 5), (1, 6), (6, 5), (21, 6)):
            def run(width=1e-6):
                error, told = 0.0, []
                for _ in range(values):  # As in a training, errors accumulate.
                    error += draw.gauss(0, width)
                    told.append(5.0 + error)
                return told
            alarms = sum(not stats.is_like_runs(run(), [run() for _ in range(runs)]) for _ in range(trials))
            found = sum(not stats.is_like_runs(run(1e-4), [run() for _ in range(runs)]) for _ in range(trials))
            self.assertLess(alarms, trials / 100, f"{values} values, {runs} runs")
            self.assertGreater(found, trials * 0.9, f"{values} values, {runs} runs")

    def test_a_bit_is_a_difference_where_runs_are_equal(self):
        self.assertTrue(stats.is_like_runs([10.0, 0.0], [[10.0, 0.0]] * 2))
        self.assertFalse(stats.is_like_runs([10.000001, 0.0], [[10.0, 0.0]] * 2))
        self.assertFalse(stats.is_like_runs([10.0], [[10.0, 0.0]] * 2))

    def test_arrivals_have_their_rate_and_their_seed(self):
        for draw in (stats.poisson, stats.bursts):
            times = draw(50, 100, 1)
            self.assertEqual(times, draw(50, 100, 1))
            self.assertNotEqual(times, draw(50, 100, 2))
            self.assertEqual(times, sorted(times))
            self.assertTrue(0 <= times[0] and times[-1] < 100)
            self.assertTrue(4500 < len(times) < 5500, f"{draw.__name__}: {len(times)}")


if __name__ == "__main__":
    unittest.main()
