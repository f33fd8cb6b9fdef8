"""Child processes: starting, triggering, waiting and terminating. None outlives the part that
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
# Time from SIGTERM to SIGKILL for a child.
GRACE_S = 3.0
# Start times of the living children; and whether no more may be started, because threads that wait
# for children do not see that their part is over.
_living, _is_over = {}, threading.Event()


class Failed(Exception):
    """A child did not do its work. The text names the child and the reason."""


class Child:
    """A process in a separate group. As a context manager it is terminated at the block's end."""

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
        """The id of the started process; a job's programs may be its children."""
        return self.process.pid

    def line(self, timeout_s):
        """Return the next line of its standard output. Raise `Failed` if it exits or the timeout
        expires."""
        until = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.buffer:
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise Failed(f"{self.name} printed nothing for {timeout_s:.0f} s: hangs? {self.said()}")
                read = os.read(self.process.stdout.fileno(), 1 << 16)
                if not read:
                    self.process.wait()
                    raise Failed(f"{self.name} ended with {self.status()}: {self.said()}")
                self.buffer += read
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode(errors="replace").strip()

    def wait_until_ready(self, timeout_s=120):
        """Wait until it prints `ready`. A line of JSON instead has the reason why it cannot start:
        raise `Failed`."""
        line = self.line(timeout_s)
        while line != "ready":
            if line.startswith("{"):
                raise Failed(f"{self.name}: {line[:300]}")
            line = self.line(timeout_s)

    def begin(self, order="go"):
        """Send it a line: the signal to begin, or another order."""
        try:
            self.process.stdin.write(order.encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise Failed(f"{self.name} ended before it began: {self.said()}") from error

    def result(self, timeout_s):
        """Return its next line of JSON. Skip other output of the program and its libraries."""
        while True:
            line = self.line(timeout_s)
            try:
                told = json.loads(line) if line.startswith("{") else None
            except ValueError:
                continue
            if told is not None:
                return told

    def let_end(self, timeout_s=20):
        """Close its standard input, which makes it exit, and return the exit status."""
        try:
            self.process.stdin.close()
        except OSError:
            pass  # It has ended already.
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{self.name} does not exit: {self.said()}") from error
        return self.process.returncode

    def status(self):
        """Its exit status or signal, as text."""
        code = self.process.returncode
        return f"signal {-code}" if code is not None and code < 0 else f"status {code}"

    def said(self, bytes_max=600):
        """The end of its standard error, in one line."""
        return " | ".join(self.log()[-bytes_max:].split("\n")).strip()

    def log(self):
        """Its whole standard error."""
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace").strip()

    def end(self):
        """Terminate its group and close the pipes."""
        _living.pop(self, None)
        end_group(self.process)
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass


def end_group(process):
    """Send SIGTERM, then SIGKILL, to a process and all of its group, so that no child of a program
    outlives it."""
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
    """The living children, as text, each with its age."""
    now = time.monotonic()
    return [f"{child.name} ({now - began:.0f} s)" for child, began in list(_living.items())]


def side_by_side(at_once, calls):
    """Make calls ({key: function}), `at_once` at a time. As each returns, yield (key, its result or
    the `Failed`).

    A bug in one call is also reported as a failure: the results of the others must not be lost. If
    the caller stops early, the calls that run end when their children do.
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
    """Run a command and return (status, standard output, standard error). On a timeout,
    terminate it with all its children: ncu alone would leave its program on the GPU."""
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
    """Become the parent of descendants whose parent exits, so that none is lost (Linux 3.4)."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants():
    """The ids of all living descendants of this process."""
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
    """Terminate all descendants of this process and refuse to start more. Return their number."""
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
    while True:  # Reap the adopted processes.
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break
    return count
