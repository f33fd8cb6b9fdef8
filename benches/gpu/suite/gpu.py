"""The properties of the GPU, from its driver and NVML, queried in a separate process: `python3
gpu.py` prints one line of JSON, and `python3 gpu.py --processes UUID` a line with the bytes of GPU
memory of each process id.

Only this file decides whether the device is a software GPU: its UUID ends in `sw-gpu`.
"""

import ctypes
import json
import sys

NAME_BYTES = 256
SMS, MAJOR, MINOR = 16, 75, 76
SOFTWARE = b"sw-gpu"
PROCESSES_MAX, NOT_SAID = 256, (1 << 64) - 1


class ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_t, versions 2 and 3."""

    _fields_ = [("pid", ctypes.c_uint), ("used_bytes", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint),
                ("compute_instance", ctypes.c_uint)]


def main():
    """Print the properties, or the reason why there are none as `error`."""
    if sys.argv[1:2] == ["--processes"]:
        try:
            print(json.dumps(processes(sys.argv[2])))
        except (OSError, AttributeError, RuntimeError):
            print("{}")
        return
    try:
        told = asked_of_the_driver()
    except (OSError, AttributeError, RuntimeError) as error:
        print(json.dumps({"error": str(error)}))
        return
    try:
        told.update(asked_of_nvml(told["uuid"]))
    except (OSError, AttributeError, RuntimeError) as error:
        told["nvml_error"] = str(error)
    print(json.dumps(told))


def asked_of_the_driver():
    """Name, UUID and size, by functions that create no context."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, version, value = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name, uuid, memory = ctypes.create_string_buffer(NAME_BYTES), ctypes.create_string_buffer(16), ctypes.c_size_t()

    def call(function, *arguments):
        result = getattr(cuda, function)(*arguments)
        if result != 0:
            raise RuntimeError(f"{function} failed with CUresult {result}")

    def attribute(number):
        call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value

    call("cuInit", 0)
    call("cuDriverGetVersion", ctypes.byref(version))
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDeviceGetName", name, NAME_BYTES, device)
    call("cuDeviceGetUuid", uuid, device)
    call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    digits = uuid.raw.hex()
    return {
        "name": name.value.decode(),
        "uuid": "GPU-" + "-".join(digits[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))),
        "software_gpu": uuid.raw.endswith(SOFTWARE),
        "memory_bytes": memory.value,
        "sms": attribute(SMS),
        "compute_capability": f"{attribute(MAJOR)}.{attribute(MINOR)}",
        "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
    }


def opened():
    """NVML, initialized, and a function that calls a function of NVML and raises on an error."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")

    def call(function, *arguments):
        result = getattr(nvml, function)(*arguments)
        if result != 0:
            raise RuntimeError(f"{function} failed with nvmlReturn {result}")

    call("nvmlInit_v2")
    return nvml, call


def asked_of_nvml(uuid):
    """The driver's version, and the state that affects measurements."""
    nvml, call = opened()
    device, value, other = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint()
    text = ctypes.create_string_buffer(NAME_BYTES)
    call("nvmlSystemGetDriverVersion", text, NAME_BYTES)
    told = {"driver": text.value.decode()}
    call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(device))
    modes = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
    if nvml.nvmlDeviceGetComputeMode(device, ctypes.byref(value)) == 0:
        told["compute_mode"] = modes.get(value.value, str(value.value))
    if nvml.nvmlDeviceGetMigMode(device, ctypes.byref(value), ctypes.byref(other)) == 0:
        told["mig"] = bool(value.value)
    if nvml.nvmlDeviceGetClockInfo(device, 1, ctypes.byref(value)) == 0:
        told["sm_clock_mhz"] = value.value
    return told


def processes(uuid):
    """Bytes of device memory per process id, for the processes that NVML has a figure for."""
    _, call = opened()
    device, count, infos = ctypes.c_void_p(), ctypes.c_uint(PROCESSES_MAX), (ProcessInfo * PROCESSES_MAX)()
    call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(device))
    call("nvmlDeviceGetComputeRunningProcesses_v3", device, ctypes.byref(count), infos)
    return {info.pid: info.used_bytes for info in infos[: count.value] if info.used_bytes != NOT_SAID}


if __name__ == "__main__":
    sys.exit(main())
