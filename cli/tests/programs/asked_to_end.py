"""asked_to_end.py HOW WHERE: uses CUDA through ctypes, prints "ready", and waits for SIGTERM or
SIGINT.

HOW    default (Python's own: SIGTERM kills, SIGINT is KeyboardInterrupt) | handler (a Python
       function for both) | caught (the program catches KeyboardInterrupt)
       elastic PROGRAM: an agent like torchrun's, without CUDA but with two workers (PROGRAM default
       WHERE); it passes the signal on to them, then prints how they ended
       loader: a program that has imported PyTorch and has no CUDA; for each line "WHERE LASTING_NS"
       it starts a process that takes batches from a DataLoader with two workers, and prints how
       that process ended
WHERE  idle | launching (one kernel after another without waiting for them) | held (the same, each
       of which may have to wait) | synchronising | capturing, with work in flight in all of them

Two kernels are in flight at first, each for LASTING_NS of the environment (30 ms).
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
import time

IMAGE = ("softgpu-module 1\n"
         "kernel lasting block_ns={} regs=32 shared=0 compute=0.01 bandwidth=0.01\n"
         "kernel brief block_ns=1000 regs=32 shared=0 compute=0.01 bandwidth=0.01\n")
GLOBAL, NON_BLOCKING = 0, 1


def check(result):
    if result != 0:
        raise RuntimeError(f"CUresult {result}")


class Work:
    """A context, and kernels to launch there."""

    def __init__(self, lasting_ns):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.context, self.module, self.stream = (ctypes.c_void_p() for _ in range(3))
        check(self.driver.cuInit(0))
        check(self.driver.cuCtxCreate_v2(ctypes.byref(self.context), 0, 0))
        check(self.driver.cuModuleLoadData(ctypes.byref(self.module), IMAGE.format(lasting_ns).encode()))
        check(self.driver.cuStreamCreate(ctypes.byref(self.stream), NON_BLOCKING))
        self.lasting, self.brief = self.function(b"lasting"), self.function(b"brief")

    def function(self, name):
        function = ctypes.c_void_p()
        check(self.driver.cuModuleGetFunction(ctypes.byref(function), self.module, name))
        return function

    def launch(self, function, stream=None):
        check(self.driver.cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, stream, None, None))

    def synchronise(self):
        check(self.driver.cuCtxSynchronize())

    def begin(self, where):
        """Launches work and does not wait for it."""
        self.launch(self.lasting)
        self.launch(self.lasting)
        if where == "capturing":
            check(self.driver.cuStreamBeginCapture_v2(self.stream, GLOBAL))
            self.launch(self.lasting, self.stream)

    def go_on(self, where):
        """Runs one round, until the program is asked to exit."""
        if where in ("idle", "capturing"):
            time.sleep(0.001)
            return
        if where == "synchronising":
            self.launch(self.lasting)
            self.synchronise()
            return
        # Few enough that the stream does not become full soon.
        self.launch(self.brief)
        time.sleep(0.02 if where == "held" else 0.001)

    def end(self, where):
        if where == "capturing":
            graph = ctypes.c_void_p()
            check(self.driver.cuStreamEndCapture(self.stream, ctypes.byref(graph)))
        self.launch(self.brief)
        self.synchronise()


def is_told_to_end():
    return bool(select.select([0], [], [], 0)[0]) and os.read(0, 1) == b""


def use_cuda(how, where):
    seen = []
    if how == "handler":
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: seen.append((signal.Signals(number).name, frame is not None)))
    work = Work(os.environ.get("LASTING_NS", "30000000"))
    print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, signal.getsignal(signal.SIGINT).__name__)
    work.begin(where)
    try:
        print("ready", flush=True)
        while not seen and not is_told_to_end():
            work.go_on(where)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        if how == "default":
            raise
    work.end(where)
    print("finished", seen, flush=True)


class Asked(Exception):
    """Like torchrun's SignalException."""


def is_any_running(workers):
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    is_running = any(worker.poll() is None for worker in workers)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
    return is_running


def be_agent(program, where):
    def handle(number, frame):
        raise Asked(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
    workers = [subprocess.Popen([program, "default", where], stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for worker in workers:
            assert worker.stdout.readline() == b"ready\n"
        print("ready", flush=True)
        # A poll in intervals, as in torchrun: Python does not restart a wait for a signal that
        # arrived just before it. Signals are blocked during each poll: a handler that raises
        # between the acquisition of subprocess's lock and its `try` would leave the lock held.
        while is_any_running(workers):
            time.sleep(0.005)
        print("nobody asked", flush=True)
    except Asked as asked:
        for worker in workers:
            worker.send_signal(asked.args[0])
        print("workers ended by", [worker.wait() for worker in workers], flush=True)
        sys.exit(1)


class Slow:
    """A slow dataset without end."""

    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        time.sleep(0.001)
        return float(index)


def ask_again(told):
    """Sends SIGINT again: Python drops exceptions that are raised in a destructor, such as
    KeyboardInterrupt."""
    if told.exc_type is KeyboardInterrupt:
        threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(told)


def load_batches(where, lasting_ns):
    from torch.utils.data import DataLoader

    sys.unraisablehook = ask_again
    work = Work(lasting_ns)
    batches = iter(DataLoader(Slow(), batch_size=2, num_workers=2))
    # One batch of each worker. A worker that has not started yet when its parent dies takes the
    # next process for its parent.
    next(batches), next(batches)
    work.begin(where)
    workers = [worker.pid for worker in batches._workers]
    print("pids", os.getpid(), *workers, flush=True)
    print("ready", flush=True)
    while True:
        next(batches)
        work.go_on(where)


def make_loaders():
    import torch.utils.data

    print("imported", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            # As in any program, an exception that is not caught ends the process.
            try:
                load_batches(*line.split())
            except KeyboardInterrupt:
                print("interrupted", flush=True)
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGINT)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        print("ended", os.waitstatus_to_exitcode(status), flush=True)


def main():
    # A shell's background job inherits SIGINT as ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    how = sys.argv[1]
    if how == "elastic":
        be_agent(*sys.argv[2:])
    elif how == "loader":
        make_loaders()
    else:
        use_cuda(how, sys.argv[2])


if __name__ == "__main__":
    main()
