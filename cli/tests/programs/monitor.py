"""Prints nvidia-ml-py's data of all devices, as one JSON document."""
import json
import time

import pynvml as nv


def answer(call, *arguments):
    try:
        return call(*arguments)
    except nv.NVMLError as error:
        return str(error)


def fields(structure):
    return {name: getattr(structure, name) for name, *_ in structure._fields_}


def processes(call, device):
    return [[p.pid, p.usedGpuMemory] for p in call(device)]


def device(index):
    d = nv.nvmlDeviceGetHandleByIndex(index)
    pci = nv.nvmlDeviceGetPciInfo(d)
    rates = nv.nvmlDeviceGetUtilizationRates(d)
    memory_v2 = nv.nvmlDeviceGetMemoryInfo(d, version=nv.nvmlMemory_v2)
    since_us = time.time_ns() // 1000 - 1_000_000
    samples = answer(nv.nvmlDeviceGetProcessUtilization, d, since_us)
    history = answer(nv.nvmlDeviceGetSamples, d, nv.NVML_GPU_UTILIZATION_SAMPLES, 0)
    now_us = time.time_ns() // 1000
    if not isinstance(samples, str):
        assert all(since_us < s.timeStamp <= now_us for s in samples), samples
        samples = {s.pid: s.smUtil for s in samples}
    if not isinstance(history, str):
        stamps = [s.timeStamp for s in history[1]]
        assert stamps == sorted(stamps) and stamps[-1] <= now_us, stamps
        history = [s.sampleValue.uiVal for s in history[1]]
    by_uuid = nv.nvmlDeviceGetHandleByUUID(nv.nvmlDeviceGetUUID(d))
    by_pci = nv.nvmlDeviceGetHandleByPciBusId(pci.busId)
    assert [nv.nvmlDeviceGetIndex(h) for h in (d, by_uuid, by_pci)] == [index] * 3
    return {
        "name": nv.nvmlDeviceGetName(d),
        "uuid": nv.nvmlDeviceGetUUID(d),
        "pci": [pci.busId, pci.busIdLegacy, pci.domain, pci.bus, pci.device],
        "minor": nv.nvmlDeviceGetMinorNumber(d),
        "capability": list(nv.nvmlDeviceGetCudaComputeCapability(d)),
        "architecture": nv.nvmlDeviceGetArchitecture(d),
        "cores": nv.nvmlDeviceGetNumGpuCores(d),
        "memory": fields(nv.nvmlDeviceGetMemoryInfo(d)),
        "memory_v2": fields(memory_v2),
        "utilisation": [rates.gpu, rates.memory],
        "compute": processes(nv.nvmlDeviceGetComputeRunningProcesses, d),
        "graphics": processes(nv.nvmlDeviceGetGraphicsRunningProcesses, d),
        "mps": processes(nv.nvmlDeviceGetMPSComputeRunningProcesses, d),
        "samples": samples,
        "history": history,
        "sm_mhz": nv.nvmlDeviceGetClockInfo(d, nv.NVML_CLOCK_SM),
        "memory_mhz": nv.nvmlDeviceGetMaxClockInfo(d, nv.NVML_CLOCK_MEM),
        "limit_mw": nv.nvmlDeviceGetEnforcedPowerLimit(d),
        "temperature": answer(nv.nvmlDeviceGetTemperature, d, nv.NVML_TEMPERATURE_GPU),
        "power": answer(nv.nvmlDeviceGetPowerUsage, d),
        "ecc": answer(nv.nvmlDeviceGetEccMode, d),
        "mig": answer(nv.nvmlDeviceGetMigMode, d),
        "field": nv.nvmlDeviceGetFieldValues(d, [nv.NVML_FI_DEV_NVLINK_LINK_COUNT])[0].nvmlReturn,
    }


before = answer(nv.nvmlDeviceGetCount)
nv.nvmlInit()
document = {
    "before": before,
    "driver": nv.nvmlSystemGetDriverVersion(),
    "cuda": nv.nvmlSystemGetCudaDriverVersion(),
    "devices": [device(index) for index in range(nv.nvmlDeviceGetCount())],
}
nv.nvmlShutdown()
document["after"] = answer(nv.nvmlDeviceGetCount)
print(json.dumps(document))
