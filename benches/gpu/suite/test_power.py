"""The governor's law in the part `power`."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "parts"))

import power

WIDTH = 18


def device(name, tdp_w, clock_mhz):
    row = [""] * WIDTH
    row[power.NAME], row[power.TDP_W], row[power.MAX_CLOCK_MHZ] = name, str(tdp_w), str(clock_mhz)
    return row


class Law(unittest.TestCase):
    def test_a_large_board_keeps_its_clock_at_full_compute(self):
        watts, mhz = power.model(device("H200", 700, 1980), 700.0, 1.0, 0.0)
        self.assertAlmostEqual(watts, 105 + (770 - 105) * 0.6)
        self.assertEqual(mhz, 1980)

    def test_without_work_power_is_that_at_rest(self):
        self.assertEqual(power.model(device("H200", 700, 1980), 700.0, 0.0, 0.0), (105.0, 1980.0))

    def test_a_small_board_lowers_its_clock_until_power_is_at_its_limit(self):
        watts, mhz = power.model(device("T4", 70, 1590), 70.0, 1.0, 1.0)
        self.assertEqual(watts, 70.0)
        dynamic_w = (1.6 * 70 - 10.5) * (mhz / 1590) ** 3
        self.assertAlmostEqual(10.5 + dynamic_w, 70.0)

    def test_a_limit_below_the_power_at_rest_or_an_unknown_board_has_no_model(self):
        self.assertEqual(power.model(device("H200", 700, 1980), 100.0, 1.0, 0.0), (None, None))
        self.assertEqual(power.model(None, 700.0, 1.0, 0.0), (None, None))

    def test_a_board_is_known_by_its_name_without_the_brand(self):
        self.assertEqual(power.plain("NVIDIA A100-SXM4-40GB"), power.plain("A100-SXM4-40GB"))
        self.assertEqual(power.plain("Tesla T4"), "T4")
        self.assertNotEqual(power.plain("NVIDIA A100-PCIE-40GB"), power.plain("A100-SXM4-40GB"))

    def test_an_error_is_the_same_either_way_and_unknown_without_a_number(self):
        self.assertEqual((power.off(2.0, 1.0), power.off(1.0, 2.0)), (2.0, 2.0))
        self.assertIsNone(power.off(None, 1.0))


if __name__ == "__main__":
    unittest.main()
