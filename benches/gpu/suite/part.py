"""The frame of a part: its options, its budget, its document and its line in the summary.

A part measures in a function that gets a `Part` and adds rows and bounds. Each addition rewrites
the document, so that the measurements are kept however the part ends. Bounds over several rows are
judged at each write (`judged_by`). A failure in the part becomes the document's `status` and `why`
and never ends the suite.
"""

import argparse
import json
import os
import signal
import sys
import time
import traceback

from . import stats
from .process import Failed, adopt_orphans, end_descendants, living
from .site import Site, Unusable

SCHEMA_VERSION = 1
# Seconds that each part may take, including its start and its end, as in README.md: (full, quick).
BUDGETS_S = {
    "harmless": (600, 72),
    "doors": (120, 13),
    "cost": (540, 40),
    "completion": (240, 15),
    "streams": (30, 12),
    "device": (60, 12),
    "profile": (300, 24),
    "share": (8130, 245),
    "quota": (120, 8),
    "signals": (300, 13),
    "demo": (180, 42),
    "power": (240, 34),
    "model": (300, 6),
}
SECONDS_PER_MODE = 20.0
# Time that a part reserves of its budget to stop its children and write its last document; at most
# a tenth of the budget.
END_S = 4.0
CUT_OFF = "the part ended before it wrote its last document"


class Over(BaseException):
    """The part exceeded its budget, or was interrupted. The text lists the running programs."""


class Part:
    """A part's options and results."""

    def __init__(self, name, options, site):
        self.name, self.options, self.site = name, options, site
        self.quick = options.quick
        self.seconds = options.seconds
        self.rows, self.bounds, self.skipped = [], [], []
        self.judge, self.is_judging = None, False
        self.began = time.monotonic()

    @property
    def budget_s(self):
        """Seconds that the part may take."""
        return self.options.budget or BUDGETS_S[self.name][1 if self.quick else 0]

    @property
    def left_s(self):
        """Remaining seconds for measurements."""
        return self.budget_s - min(END_S, self.budget_s / 10) - (time.monotonic() - self.began)

    def patience_s(self, seconds):
        """Seconds that a program may be silent until it is reported as hanging: at most half of the
        remaining time, so that time is left for the report. Ten times as long on a software GPU,
        whose timings mean nothing: the machine may be busy."""
        return max(5.0, min(seconds * (10 if self.site.is_software else 1), self.left_s / 2))

    def judged_by(self, judge):
        """Call `judge` at each write of the document, to add the bounds over several rows."""
        self.judge = judge

    def row(self, **fields):
        """Add a measurement."""
        self.rows.append(fields)
        self.write("ended", CUT_OFF)
        print("  " + "  ".join(f"{key}={shown(value)}" for key, value in fields.items() if not is_long(value)), flush=True)

    def bound(self, what, value, limit, unit="", at_least=False, spread=0.0, of_hardware=True, why=None):
        """Add a bound. `spread` is the difference between repeated runs, in the unit of the value;
        `why` is the reason for a missing value.

        Timings and results of kernels are `of_hardware`: a software GPU has none, so there they are
        recorded and not judged.
        """
        held = stats.holds(value, limit, spread, at_least)
        if of_hardware and self.site.is_software:
            held, why = None, "the device is a software GPU, whose figures say nothing about hardware"
        self.bounds.append({"what": what, "value": value, "limit": limit, "unit": unit, "at_least": at_least,
                            "spread": spread, "held": held, "why": why})
        if not self.is_judging:
            self.write("ended", CUT_OFF)

    def skip(self, what, why):
        """Record that something cannot be measured here, and why."""
        self.skipped.append({"what": what, "why": str(why)})
        self.write("ended", CUT_OFF)
        print(f"  skipped: {what}: {why}", flush=True)

    def document(self, status, why):
        """The whole document, including the bounds over several rows."""
        own, self.bounds, self.is_judging = self.bounds, list(self.bounds), True
        try:
            if self.judge:
                self.judge()
            bounds = self.bounds
        finally:
            self.bounds, self.is_judging = own, False
        return {
            "schema_version": SCHEMA_VERSION, "part": self.name, "status": status, "why": why,
            "software_gpu": self.site.is_software, "gpu": self.site.gpu, "quick": self.quick,
            "seconds_per_mode": self.seconds, "budget_s": self.budget_s,
            "took_s": round(time.monotonic() - self.began, 1), "command": sys.argv,
            "bounds": bounds, "skipped": self.skipped, "rows": self.rows,
        }

    def write(self, status, why):
        """Write the document to its file, atomically, and return it."""
        document = self.document(status, why)
        if self.options.json:
            with open(self.options.json + ".partial", "w") as file:
                json.dump(document, file, indent=1)
            os.replace(self.options.json + ".partial", self.options.json)
        return document


def is_long(value):
    return isinstance(value, (list, dict)) and len(str(value)) > 80


def shown(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def options_of(about, more=None):
    """Parse the options of all parts. `more` adds those of one part."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    common_options(parser)
    parser.add_argument("--json", metavar="FILE", help="file for the document (default: standard output, at the end)")
    parser.add_argument("--beside", metavar="DIR", help="the results folder: profiles are written there, share and model read it")
    parser.add_argument("--budget", type=float, metavar="S", help="seconds that this part may take (default: that in README.md)")
    if more:
        more(parser)
    return parser.parse_args()


def common_options(parser):
    """Add the options that the parts and the suite have."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--quick", action="store_true", help="one program per kind, one pair, one load")
    parser.add_argument("--programs", metavar="DIR", default=os.path.join(here, "built"),
                        help="folder that benches/gpu/pack has built (default: built beside this)")
    parser.add_argument("--python", default=sys.executable, help="a python that has PyTorch (default: this one)")
    parser.add_argument("--seconds", type=float, default=SECONDS_PER_MODE, metavar="S",
                        help="seconds that each mode is measured for (default: %(default)s)")
    parser.add_argument("--software-gpu", metavar="MODEL",
                        help="start a software GPU and run there, to try the suite out: shows nothing about hardware")


def handle_end(number, _):
    """Handle the first SIGTERM, SIGINT or SIGALRM. Later ones are ignored: they would interrupt
    the cleanup."""
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(each, signal.SIG_IGN)
    running = living()
    raise Over(("over its budget" if number == signal.SIGALRM else "interrupted")
               + (f" while these ran: {', '.join(running)}" if running else ""))


def main(name, about, measure, more=None):
    """Run a part. Return its exit status: 0 if it completed, 1 if not, 2 if nothing could run."""
    options = options_of(about, more)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, handle_end)
    adopt_orphans()
    site = Site(os.path.abspath(options.programs), options.python, options.software_gpu)
    part = Part(name, options, site)
    try:
        status, why = watched(part, measure)
    except Unusable as error:
        print(f"{name}: {error}", file=sys.stderr)
        part.write("failed", str(error))
        return 2
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        end_descendants()
    document = part.write(status, why)
    if not options.json:
        print(json.dumps(document, indent=1))
    print(line_of(document), flush=True)
    return 0 if status in ("done", "skipped") else 1


def watched(part, measure):
    """Measure until the part is done or its time is up. Return the document's status, and why."""
    try:
        signal.setitimer(signal.ITIMER_REAL, max(0.5, part.left_s))
        with part.site as site:
            site.known_torch, site.measured = told_by_the_suite(part.options.beside), part.options.beside
            try:
                measure(part)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        why = None if part.rows else "; ".join(entry["why"] for entry in part.skipped)
        return "done" if part.rows else "skipped", why
    except Failed as error:
        return "failed", str(error)
    except Over as error:
        return "ended", f"budget of {part.budget_s:.0f} s: {error}"
    except Unusable:
        raise
    except Exception as error:
        # A bug in the part is a result like others. Print its place.
        traceback.print_exc()
        return "failed", f"{type(error).__name__}: {error}"


def told_by_the_suite(folder):
    """The result of `run`'s check for PyTorch, if `run` started this part: checks take seconds."""
    try:
        with open(os.path.join(folder or os.devnull, "machine.json")) as file:
            return json.load(file)["torch"]
    except (OSError, KeyError, ValueError):
        return None


def line_of(document):
    """The summary's line for a part."""
    held = [bound["held"] for bound in document["bounds"]]
    words = [f"{document['part']:<11}{document['status']:<8}{document['took_s']:>6.0f} of {document['budget_s']:.0f} s"]
    words.append(f"{held.count(True)} bounds hold" + (f", {held.count(False)} MISSED" if False in held else ""))
    if None in held:
        words.append(f"{held.count(None)} not judged")
    if document["skipped"]:
        words.append(f"{len(document['skipped'])} skipped")
    if document["why"]:
        words.append(document["why"])
    return "; ".join(words)
