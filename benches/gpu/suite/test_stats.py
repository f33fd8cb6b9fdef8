"""What the suite computes. `python3 -m unittest discover benches/gpu/suite -t benches/gpu` runs it."""

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

    def test_a_run_may_lie_outside_others_by_what_they_lie_apart(self):
        self.assertTrue(stats.is_within_runs(12.0, [10.0, 11.0]))
        self.assertFalse(stats.is_within_runs(12.1, [10.0, 11.0]))
        self.assertFalse(stats.is_within_runs(10.1, [10.0, 10.0]))

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
