"""The frame of a part: its options, its budget, its document and its line.

A part measures in a function that gets a `Part`; it adds rows and bounds as it goes, and with each
the document is written anew, so that what was measured stays whoever ends it and however. What is
judged over several rows is judged whenever it is written (`judged_by`). Whatever goes wrong in it
becomes the document's `status` and `why`, never the end of the suite.
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
# Seconds that each part may take, its start and its end included, as published in README.md: (full,
# quick).
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
    "model": (300, 6),
}
SECONDS_PER_MODE = 20.0
# Of its budget a part leaves so much for its children to end and its last word; at most a tenth of
# it.
END_S = 4.0
CUT_OFF = "it was cut off in the middle, without a last word"


class Over(BaseException):
    """The part's time is up, or somebody wants it to end. Its text says what was running."""


class Part:
    """What a part has been asked for and what it found."""

    def __init__(self, name, options, site):
        self.name, self.options, self.site = name, options, site
        self.quick = options.quick
        self.seconds = options.seconds
        self.rows, self.bounds, self.skipped = [], [], []
        self.judge, self.is_judging = None, False
        self.began = time.monotonic()

    @property
    def budget_s(self):
        """Seconds that it may take."""
        return self.options.budget or BUDGETS_S[self.name][1 if self.quick else 0]

    @property
    def left_s(self):
        """Of these, what is left to measure in."""
        return self.budget_s - min(END_S, self.budget_s / 10) - (time.monotonic() - self.began)

    def patience_s(self, seconds):
        """How long a program may be silent until it is said to hang: never longer than half of the
        time that is left, so that it can be said. On a software GPU, which shows nothing of times,
        ten times as long: the machine may be a busy one."""
        return max(5.0, min(seconds * (10 if self.site.is_software else 1), self.left_s / 2))

    def judged_by(self, judge):
        """What is called whenever the document is written, to add the bounds that are over several
        rows."""
        self.judge = judge

    def row(self, **fields):
        """Something that was measured."""
        self.rows.append(fields)
        self.write("ended", CUT_OFF)
        print("  " + "  ".join(f"{key}={shown(value)}" for key, value in fields.items() if not is_long(value)), flush=True)

    def bound(self, what, value, limit, unit="", at_least=False, spread=0.0, of_hardware=True, why=None):
        """Something that must hold. `spread` is by how much runs of the same differ, in the value's
        own unit; `why` a value is not there.

        What is `of_hardware`, timings and results of kernels, a software GPU shows nothing of:
        there it is written and not judged.
        """
        held = stats.holds(value, limit, spread, at_least)
        if of_hardware and self.site.is_software:
            held, why = None, "the device is a software GPU, which shows nothing of this"
        self.bounds.append({"what": what, "value": value, "limit": limit, "unit": unit, "at_least": at_least,
                            "spread": spread, "held": held, "why": why})
        if not self.is_judging:
            self.write("ended", CUT_OFF)

    def skip(self, what, why):
        """Something that cannot be measured here, and why."""
        self.skipped.append({"what": what, "why": str(why)})
        self.write("ended", CUT_OFF)
        print(f"  skipped: {what}: {why}", flush=True)

    def document(self, status, why):
        """All of it, with what is judged over several rows."""
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
        """The document as it stands into its file, whole at any moment; the document."""
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
    """The options that all parts have. `more` adds a part's own."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    common_options(parser)
    parser.add_argument("--json", metavar="FILE", help="where the document goes (default: standard output, last)")
    parser.add_argument("--beside", metavar="DIR", help="the folder of the results: profiles go there, share and model read there")
    parser.add_argument("--budget", type=float, metavar="S", help="seconds that this may take (default: README.md's)")
    if more:
        more(parser)
    return parser.parse_args()


def common_options(parser):
    """Those of the suite, too."""
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
    """Of SIGTERM, SIGINT and SIGALRM. Once: what cleans up after it is not interrupted."""
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(each, signal.SIG_IGN)
    running = living()
    raise Over(("over its budget" if number == signal.SIGALRM else "asked to end")
               + (f" while these ran: {', '.join(running)}" if running else ""))


def main(name, about, measure, more=None):
    """Runs a part: its exit status is 0 if it came to its end, 1 if not, 2 if nothing could be
    tried."""
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
    """Measures until it is done or its time is up: the document's status, and why."""
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
        # A fault of the part's own is a result like others; where it was is worth knowing.
        traceback.print_exc()
        return "failed", f"{type(error).__name__}: {error}"


def told_by_the_suite(folder):
    """What `run` has found out about PyTorch, if it runs this part; looking takes seconds."""
    try:
        with open(os.path.join(folder or os.devnull, "machine.json")) as file:
            return json.load(file)["torch"]
    except (OSError, KeyError, ValueError):
        return None


def line_of(document):
    """A part in one line."""
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
