"""When a part's document is written, how children end, and that README.md has the budgets."""

import argparse
import importlib.machinery
import importlib.util
import json
import os
import sys
import tempfile
import time
import unittest

from suite import process
from suite.part import BUDGETS_S, CUT_OFF, Part

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Site:
    """A GPU that does not exist."""

    is_software, gpu = False, {"name": "none"}


def options(path=None, **more):
    return argparse.Namespace(**{"quick": True, "seconds": 20.0, "budget": None, "json": path, **more})


def program(name):
    """Load a file of the suite whose name has no `.py` as a module."""
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(FOLDER, name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


class Document(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.part = Part("share", options(os.path.join(self.folder, "share.json")), Site())

    def read(self):
        with open(os.path.join(self.folder, "share.json")) as file:
            return json.load(file)

    def test_what_was_measured_is_written_at_once_and_judged_anew(self):
        values = []
        self.part.judged_by(lambda: values and self.part.bound("mean", sum(values) / len(values), 2.0, "x"))
        for value in (1.0, 5.0):
            values.append(value)
            self.part.row(value=value)
        document = self.read()
        self.assertEqual((document["status"], document["why"]), ("ended", CUT_OFF))
        self.assertEqual([row["value"] for row in document["rows"]], [1.0, 5.0])
        self.assertEqual([(bound["value"], bound["held"]) for bound in document["bounds"]], [(3.0, False)])

    def test_a_bound_and_what_was_skipped_are_written_at_once_too(self):
        self.part.bound("a thing", 1, 2)
        self.assertEqual([bound["held"] for bound in self.read()["bounds"]], [True])
        self.part.skip("another", "it is not there")
        self.assertEqual(self.read()["skipped"], [{"what": "another", "why": "it is not there"}])
        self.assertEqual(self.part.write("done", None)["status"], self.read()["status"])


class Budgets(unittest.TestCase):
    def setUp(self):
        self.run = program("run")

    def test_quick_is_within_ten_minutes_with_all_that_is_around_its_parts(self):
        looked_s = self.run.LOOK_S
        self.assertEqual(self.run.seconds_of(list(BUDGETS_S), options(), looked_s), 556)

    def test_readme_has_the_budgets(self):
        with open(os.path.join(FOLDER, "README.md")) as file:
            text = file.read()
        for part, (full, quick) in BUDGETS_S.items():
            self.assertIn(f"| `{part}` | {quick} | {full} |", text)

    def test_what_one_part_takes_or_leaves_is_all_others(self):
        parts = list(BUDGETS_S)
        total = sum(quick for _, quick in BUDGETS_S.values())
        for left_s in (total, total / 2, total * 1.2):
            given = self.run.share_of(parts, options(), left_s)
            self.assertAlmostEqual(given, BUDGETS_S[parts[0]][1] * left_s / total)
        # Parts that use all of their time end exactly at the deadline.
        left_s = 300.0
        for index in range(len(parts)):
            left_s -= self.run.share_of(parts[index:], options(), left_s)
        self.assertAlmostEqual(left_s, 0.0)
        self.assertEqual(self.run.share_of(["doors"], options(), 1e6), self.run.MORE_MAX * BUDGETS_S["doors"][1])
        self.assertEqual(self.run.share_of(["doors"], options(budget=7.0), 1e6), 7.0)


class Children(unittest.TestCase):
    def test_who_takes_too_long_is_ended_with_what_it_started(self):
        # On a busy machine three seconds may be too short for the script to start its child.
        for limit_s in (3, 60):
            with tempfile.NamedTemporaryFile("r") as file:
                script = f"sleep 1000 & echo $! > {file.name}; wait"
                with self.assertRaisesRegex(process.Failed, f"sh did not end within {limit_s} s: hangs"):
                    process.run(["sh", "-c", script], dict(os.environ), limit_s)
                said = file.read()
            if said:
                break
        child = int(said)
        until = time.monotonic() + 60
        while is_alive(child) and time.monotonic() < until:
            time.sleep(0.01)
        self.assertFalse(is_alive(child))

    def test_a_fault_of_our_own_is_a_failure_of_one_call(self):
        told = dict(process.side_by_side(2, {"wrong": lambda: {}["memory"], "right": lambda: 1}))
        self.assertEqual(told["right"], 1)
        self.assertIn("KeyError", str(told["wrong"]))

    def test_lines_that_are_no_json_are_passed_over(self):
        words = "print('{warning} of a library'); print('{\"a\": 1}'); input()"
        with process.Child([sys.executable, "-c", words], dict(os.environ), "child") as child:
            self.assertIn("child (", process.living()[0])
            self.assertEqual(child.result(60), {"a": 1})
        self.assertEqual(process.living(), [])
        child.errors.close()


def is_alive(pid):
    """Whether a process lives. A zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


if __name__ == "__main__":
    unittest.main()
