"""The site of a part: the GPU of the environment, or a software GPU started for the part; MPS;
daemons; and the environment of a program with each of these.

Settings of the machine are never changed. MPS is a private control daemon in a private folder,
stopped at the end of the part.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from .process import Child, Failed, run

SUITE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(SUITE)
# Variables of the caller's environment that would change measurements.
OF_THE_CALLER = ("LD_PRELOAD", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY",
                 "CUDA_MPS_CLIENT_PRIORITY", "CUDA_LAUNCH_BLOCKING", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
START_S = 60.0
NO_TORCH = "PyTorch is not usable: "


class Unusable(Exception):
    """Nothing can be measured here. The text has the reason."""


class Site:
    """A GPU, and the servers that run for it. A context manager: it stops all of them."""

    def __init__(self, programs, python, software=None):
        self.programs, self.python, self.model = programs, python, software
        self.stack = contextlib.ExitStack()
        self.mps_folder, self.no_mps = None, None
        self.servers, self.gpu, self.known_torch = {}, None, None
        # The folder with the measurements that daemons read, if a part wrote any (measured.py).
        self.measured = None

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="pillion-gpu-")
        self.stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        try:
            if self.model:
                self.driver_folder()
            _, said, _ = run([sys.executable, os.path.join(SUITE, "gpu.py")], self.env("timeslice"), 60)
            self.gpu = json.loads(said)
            if "error" in self.gpu:
                raise Unusable(f"no GPU: {self.gpu['error']}")
        except Failed as error:
            self.stack.close()
            raise Unusable(str(error)) from error
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *_):
        self.stack.close()

    @property
    def is_software(self):
        """Whether the device is a software GPU: by its UUID, or by --software-gpu until that is
        read."""
        return self.gpu["software_gpu"] if self.gpu else self.model is not None

    def program(self, name):
        """The path of a built program or library."""
        path = os.path.join(self.programs, name)
        if not os.path.exists(path):
            raise Unusable(f"no {name} in {self.programs}: benches/gpu/pack builds it")
        return path

    def path(self, name):
        """A path in a folder that is removed with the site."""
        return os.path.join(self.folder, name)

    def driver_folder(self):
        """Link the stand-ins for driver, NVML and runtime under the names that programs load."""
        os.mkdir(self.path("driver"))
        for name, library in (("libcuda.so.1", "libcuda.so"), ("libcuda.so", "libcuda.so"),
                              ("libnvidia-ml.so.1", "libnvidia_ml.so")):
            os.symlink(self.program(library), self.path(os.path.join("driver", name)))
        os.mkdir(self.path("runtime"))
        for name, library in (("libcudart.so.13", "libcudart.so"), ("libcublas.so.13", "libcublas.so"),
                              ("libcublasLt.so.13", "libcublas_lt.so")):
            os.symlink(self.program(library), self.path(os.path.join("runtime", name)))

    def server(self, sharing):
        """The socket of the software GPU's device server for a way of sharing. The first call
        starts the server."""
        if sharing not in self.servers:
            socket = self.path(f"{sharing}.sock")
            argv = [self.program("softgpu-server"), "--socket", socket, "--device", self.model, "--sharing", sharing,
                    "--governor", "on"]
            child = self.stack.enter_context(Child(argv, clean_env()))
            wait_for(lambda: os.path.exists(socket), child)
            self.servers[sharing] = socket
        return self.servers[sharing]

    def env(self, sharing, wheel=False, **more):
        """The environment of a program on this GPU. `wheel`: the program is a framework's and loads
        the CUDA runtime."""
        env = clean_env()
        if self.model:
            env["SOFTGPU_SOCKET"] = self.server(sharing)
            env["LD_LIBRARY_PATH"] = self.path("driver")
            if wheel:
                folder = self.path("runtime")
                env["LD_PRELOAD"] = ":".join(os.path.join(folder, name) for name in sorted(os.listdir(folder)))
        elif sharing == "mps":
            env["CUDA_MPS_PIPE_DIRECTORY"] = self.mps()
        else:
            # Without a control daemon in that folder, the driver works without MPS.
            env["CUDA_MPS_PIPE_DIRECTORY"] = self.path("no-mps")
        if self.gpu and not self.model:
            env["CUDA_VISIBLE_DEVICES"] = self.gpu["uuid"]
        # Caches of frameworks are removed at the end. HOME stays: it may contain packages.
        env["XDG_CACHE_HOME"] = self.folder
        env.update({name: str(value) for name, value in more.items()})
        return env

    def mps(self):
        """The pipe folder of the private MPS. The first call starts it, or raises `Failed` with the
        reason."""
        if self.no_mps:
            raise Failed(self.no_mps)
        if self.mps_folder is None:
            try:
                self.mps_folder = self.start_mps()
            except Failed as error:
                self.no_mps = f"MPS does not start: {error}"
                raise Failed(self.no_mps) from error
        return self.mps_folder

    def start_mps(self):
        control = shutil.which("nvidia-cuda-mps-control")
        if control is None:
            raise Failed("no nvidia-cuda-mps-control on this machine")
        if self.gpu.get("compute_mode") == "prohibited":
            raise Failed("the GPU's compute mode is prohibited")
        folder = tempfile.mkdtemp(prefix="mps-")  # Short, as a socket's path must be.
        self.stack.callback(shutil.rmtree, folder, ignore_errors=True)
        env = clean_env() | {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder,
                             "CUDA_VISIBLE_DEVICES": self.gpu["uuid"]}
        with open(os.path.join(folder, "start.log"), "w") as log:
            # It becomes a background process and keeps its output open, so the output must not be a
            # pipe that we read to its end.
            try:
                done = subprocess.run([control, "-d"], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=START_S)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise Failed(f"nvidia-cuda-mps-control -d: {error}") from error
        if done.returncode != 0:
            raise Failed(f"nvidia-cuda-mps-control -d ended with {done.returncode}: {self.mps_log(folder)}")
        self.stack.callback(self.stop_mps, control, env)
        # The server starts with its first client. Start one and check for the server.
        self.mps_folder = folder
        try:
            with Child(self.spinner("--seconds", "0.1"), self.env("mps")) as child:
                child.wait_until_ready(60)
                servers = self.ask_mps(control, env, "get_server_list")
            if not servers.strip():
                raise Failed(f"no server for a first client; its log: {self.mps_log(folder)}")
        except Failed as error:
            self.mps_folder = None
            raise Failed(f"{error}; MPS's log: {self.mps_log(folder)}") from error
        return folder

    @staticmethod
    def ask_mps(control, env, words):
        try:
            done = subprocess.run([control], input=words + "\n", env=env, timeout=START_S, capture_output=True, text=True)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Failed(f"nvidia-cuda-mps-control, {words}: {error}") from error
        return done.stdout

    def stop_mps(self, control, env):
        with contextlib.suppress(Exception):
            self.ask_mps(control, env, "quit")

    @staticmethod
    def mps_log(folder):
        """The last lines of its logs."""
        words = []
        for name in ("start.log", "control.log", "server.log"):
            with contextlib.suppress(OSError), open(os.path.join(folder, name)) as log:
                words += log.read().strip().split("\n")[-2:]
        return " | ".join(words)[-300:]

    def sharings(self):
        """The ways of sharing that are possible here, and why another is not: (["timeslice",
        "mps"], None)."""
        if self.model:
            return ["timeslice", "mps"], None
        try:
            self.mps()
        except Failed as error:
            return ["timeslice"], str(error)
        return ["timeslice", "mps"], None

    def ptx(self):
        """The file with the probes' kernel."""
        path = self.path("spin.ptx")
        if not os.path.exists(path):
            trace = os.path.join(ROOT, "probes", "spin.trace")
            _, text, _ = run([self.program("pillion-replay"), "--print-ptx", "--trace", trace], clean_env(), 30)
            with open(path, "w") as file:
                file.write(text)
        return path

    def probe(self, name, *arguments):
        """The command line of a probe."""
        return [self.program(name), "--ptx", self.ptx(), *map(str, arguments)]

    def spinner(self, *arguments):
        """The command line of the probe that launches without pause."""
        return self.probe("spinner", *arguments)

    def pillion(self, klass, argv, memory="unlimited", profile=None, more=()):
        """The command line that runs `argv` as a job."""
        command = [self.program("pillion"), "run", "--class", klass, "--memory", memory, "--require-daemon"]
        if profile:
            command += ["--profile", profile]
        command += more
        return [*command, "--", *argv]

    @contextlib.contextmanager
    def daemon(self, sharing, policy=""):
        """Run a pilliond for this GPU; `policy` has the lines of its `[policy]`."""
        folder = tempfile.mkdtemp(dir=self.folder)
        socket, config = os.path.join(folder, "pillion.sock"), os.path.join(folder, "gpu.toml")
        with open(config, "w") as file:
            file.write(f'[gpu]\nuuid = "{self.gpu_uuid(sharing)}"\nsharing = "{sharing}"\n\n[policy]\n{policy}\n\n'
                       f'[learnt]\nkeep = false\n\n[socket]\npath = "{socket}"\n')
        env = self.env(sharing if self.model else "timeslice")
        if self.measured:
            env["STATE_DIRECTORY"] = os.path.abspath(self.measured)
        with Child([self.program("pilliond"), "--config", config], env, "pilliond") as child:
            wait_for(lambda: os.path.exists(socket), child)
            yield Daemon(self, socket, env)

    def gpu_uuid(self, sharing):
        """The device's UUID. Each server of the software GPU has another one."""
        if not self.model or sharing == "timeslice":
            return self.gpu["uuid"]
        _, said, _ = run([sys.executable, os.path.join(SUITE, "gpu.py")], self.env(sharing), 60)
        return json.loads(said)["uuid"]

    def torch(self):
        """The version of PyTorch that programs have here. Raise `Failed` with the reason if there
        is none. Checked once."""
        if self.known_torch is None:
            try:
                self.known_torch = self.look_for_torch()
            except Failed as error:
                self.known_torch = NO_TORCH + str(error)
        if self.known_torch.startswith(NO_TORCH):
            raise Failed(self.known_torch)
        return self.known_torch

    def look_for_torch(self):
        """Run a program that imports PyTorch and requires a GPU, and return the version."""
        words = "import torch; assert torch.cuda.is_available(), 'torch sees no GPU'; print(torch.__version__)"
        _, said, _ = run([self.python, "-c", words], self.env("timeslice", wheel=True), 180)
        return said.strip()


def attending(site, daemon):
    """Start an idle high-priority client, so that best-effort launches need leases. Return the
    `Child`."""
    argv = site.pillion("high-priority", site.probe("pulse", "--us", 50))
    child = Child(argv, site.env("timeslice", PILLION_SOCKET=daemon.socket), "the idle high-priority client")
    try:
        child.wait_until_ready()
    except BaseException:
        child.end()
        raise
    return child


class Daemon:
    """A running pilliond."""

    def __init__(self, site, socket, env):
        self.site, self.socket, self.env = site, socket, env

    def status(self):
        """Its entry of `pillion status --json`."""
        env = self.env | {"PILLION_SOCKET": self.socket}
        _, said, _ = run([self.site.program("pillion"), "status", "--json"], env, 30)
        for daemon in json.loads(said)["daemons"]:
            if daemon["socket"] == self.socket:
                return daemon
        raise Failed("the daemon does not answer")

    def job(self, child):
        """The entry of a child's job. `pillion run` starts the job's id with its process id, and
        replaces itself by the program."""
        for job in self.status()["jobs"]:
            if job["job"].startswith(f"{child.pid}-"):
                return job
        raise Failed(f"the daemon does not know {child.name}: it was not attached; {child.said()}")


def clean_env():
    """The caller's environment without the variables that would change measurements."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("PILLION_", "SOFTGPU_")) and name not in OF_THE_CALLER}
    kept["PYTHONDONTWRITEBYTECODE"] = "1"
    return kept


def wait_for(is_so, child):
    """Wait until `is_so()`. Raise `Failed` if the child exits or takes too long."""
    until = time.monotonic() + START_S
    while not is_so():
        if child.process.poll() is not None:
            raise Failed(f"{child.name} ended with {child.status()}: {child.said()}")
        if time.monotonic() > until:
            raise Failed(f"{child.name} did not start: {child.said()}")
        time.sleep(0.02)
