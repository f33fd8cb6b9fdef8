"""Children: how they are started, told to begin, waited for and ended. None outlives the part that
started it."""

import concurrent.futures
import ctypes
import json
import os
import selectors
import signal
import subprocess
import tempfile
import threading
import time

PR_SET_CHILD_SUBREAPER = 36
# What a child that is asked to end (SIGTERM) is given before it is killed.
GRACE_S = 3.0
# Those that live, by when they were started; and whether no more may be: threads that wait for
# children do not see that their part is over.
_living, _is_over = {}, threading.Event()


class Failed(Exception):
    """A child did not do what it was for; the text says which and why."""


class Child:
    """A process of its own group. As a context manager it is ended at the end of the block."""

    def __init__(self, argv, env, name=None):
        self.name = name or os.path.basename(argv[0])
        if _is_over.is_set():
            raise Failed(f"{self.name} was not started: the part is over")
        self.errors = tempfile.TemporaryFile()
        try:
            self.process = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                            start_new_session=True)
        except OSError as error:
            raise Failed(f"{self.name}: {error}") from error
        self.buffer = b""
        _living[self] = time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    @property
    def pid(self):
        """Of the process that was started; a job's programs may be its children."""
        return self.process.pid

    def line(self, timeout_s):
        """The next line of its standard output; `Failed` if it ends or says nothing for so long."""
        until = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.buffer:
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise Failed(f"{self.name} said nothing for {timeout_s:.0f} s: hangs? {self.said()}")
                read = os.read(self.process.stdout.fileno(), 1 << 16)
                if not read:
                    self.process.wait()
                    raise Failed(f"{self.name} ended with {self.status()}: {self.said()}")
                self.buffer += read
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode(errors="replace").strip()

    def wait_until_ready(self, timeout_s=120):
        """Until it says that it has what it needs. A line of JSON instead is why it cannot:
        `Failed`."""
        line = self.line(timeout_s)
        while line != "ready":
            if line.startswith("{"):
                raise Failed(f"{self.name}: {line[:300]}")
            line = self.line(timeout_s)

    def begin(self, order="go"):
        """Lets it begin, or do what a line says."""
        try:
            self.process.stdin.write(order.encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise Failed(f"{self.name} ended before it began: {self.said()}") from error

    def result(self, timeout_s):
        """Its next line of JSON; what else it or its libraries write is passed over."""
        while True:
            line = self.line(timeout_s)
            try:
                told = json.loads(line) if line.startswith("{") else None
            except ValueError:
                continue
            if told is not None:
                return told

    def let_end(self, timeout_s=20):
        """Closes its standard input, at which it ends; the exit status."""
        try:
            self.process.stdin.close()
        except OSError:
            pass  # It has ended already.
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{self.name} does not end: {self.said()}") from error
        return self.process.returncode

    def status(self):
        """How it ended, in words."""
        code = self.process.returncode
        return f"signal {-code}" if code is not None and code < 0 else f"status {code}"

    def said(self, bytes_max=600):
        """The end of what it wrote to its standard error, in one line."""
        return " | ".join(self.log()[-bytes_max:].split("\n")).strip()

    def log(self):
        """All that it wrote to its standard error."""
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace").strip()

    def end(self):
        """Asks its group to end, then makes it."""
        _living.pop(self, None)
        end_group(self.process)
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass


def end_group(process):
    """Asks a process and all of its group to end, then makes them: what a program started does not
    outlive it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None or number == signal.SIGKILL:
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                break
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                pass


def living():
    """The children that live, in words: each with how long it has."""
    now = time.monotonic()
    return [f"{child.name} ({now - began:.0f} s)" for child, began in list(_living.items())]


def side_by_side(at_once, calls):
    """Makes calls ({key: function}) some at a time; as each returns, (key, what it returned or why
    it `Failed`).

    A fault of our own in one of them is told as a failure, too: it must not take what the others
    found along. Whoever stops in between leaves the rest to end with their children.
    """
    pool = concurrent.futures.ThreadPoolExecutor(max(1, at_once))
    try:
        futures = {pool.submit(function): key for key, function in calls.items()}
        for future in concurrent.futures.as_completed(futures):
            try:
                yield futures[future], future.result()
            except Failed as error:
                yield futures[future], error
            except Exception as error:
                yield futures[future], Failed(f"{type(error).__name__}: {error}")
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def run(argv, env, timeout_s, check=True):
    """Runs a command to its end; (status, standard output, standard error). Who takes too long is
    ended with all that it started: ncu, left alone, would leave its program on the GPU."""
    name = os.path.basename(argv[0])
    try:
        process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, errors="replace", start_new_session=True)
    except OSError as error:
        raise Failed(f"{name}: {error}") from error
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{name} did not end within {timeout_s:.0f} s: hangs?") from error
    finally:
        end_group(process)
        process.stdout.close()
        process.stderr.close()
    if check and process.returncode != 0:
        last = errors.strip().split("\n")[-1]
        raise Failed(f"{name} ended with {process.returncode}: {last[-300:]}")
    return process.returncode, output, errors


def adopt_orphans():
    """Processes that lose their parent below us become our children, so that none gets lost (Linux
    3.4)."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants():
    """The ids of all that live below this process."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if fields[0] != "Z":
            parents[int(name)] = int(fields[1])
    below, found = {os.getpid()}, True
    while found:
        found = [pid for pid, parent in parents.items() if parent in below and pid not in below]
        below.update(found)
    return below - {os.getpid()}


def end_descendants(grace_s=GRACE_S):
    """Ends whatever lives below this process, for good: no child is started after it. How many had
    to be."""
    _is_over.set()
    left = descendants()
    count = len(left)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in left:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        until = time.monotonic() + grace_s
        while left and time.monotonic() < until:
            time.sleep(0.05)
            left = descendants()
    while True:  # What we adopted and nobody waited for.
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break
    return count
