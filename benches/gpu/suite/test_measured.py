"""When block priority counts as working, and the file about it. Run this with
`python3 -m unittest discover benches/gpu/suite -t benches/gpu`."""

import os
import tempfile
import unittest

from suite import measured

GPU = {"uuid": "GPU-aa11", "name": "A \"fast\" one", "cuda": "12.8", "driver": "570.86"}


class Measured(unittest.TestCase):
    def test_what_is_left_of_the_delay_decides(self):
        # Kernels of four waves of 1.25 ms, two in flight.
        for with_ms, expected in ((0.2, True), (1.3, True), (1.9, True), (2.1, False), (5.1, False), (9.6, False)):
            self.assertEqual(measured.works(0.1, 9.6, with_ms, 1.25)[0], expected, with_ms)
        # A remaining wait within the limit is not enough if less than half of the wait is removed.
        self.assertFalse(measured.works(0.1, 3.0, 1.9, 1.25)[0])

    def test_nothing_follows_where_a_request_is_never_late(self):
        works, why = measured.works(0.1, 0.2, 0.1, 1.25)
        self.assertIsNone(works)
        self.assertIn("0.10 ms late", why)

    def test_the_file_is_what_pilliond_reads(self):
        text = measured.document(GPU, True, 0.1, 9.6, 0.4)
        for line in ("schema_version = 1", 'uuid = "GPU-aa11"', "cuda_driver = 12080", "block_priority = true", "with_ms = 0.4"):
            self.assertIn(line, text.splitlines())
        with tempfile.TemporaryDirectory() as folder:
            path = measured.write(folder, "GPU-aa11", text)
            self.assertEqual(os.listdir(folder), ["GPU-aa11.measured"])
            with open(path) as file:
                self.assertEqual(file.read(), text)


if __name__ == "__main__":
    unittest.main()
