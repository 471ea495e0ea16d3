"""Samples of the machine: CPU, memory, and accelerators where NVML is there."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import psutil

SAMPLE_SECONDS = 15.0


class HostSampler:
    """`add(values)` takes each sample, in the metrics' names."""

    def __init__(self, add: Callable[[dict[str, float]], None]) -> None:
        self._add = add
        self._nvml = _open_nvml()
        psutil.cpu_percent()  # the first call only starts the measurement

    def look(self) -> float:
        memory = psutil.virtual_memory()
        values = {
            "system/cpu_percent": psutil.cpu_percent(),
            "system/memory_used_bytes": float(memory.total - memory.available),
            "system/memory_percent": memory.percent,
        }
        if self._nvml is not None:
            values |= _sample_gpus(self._nvml)
        self._add(values)
        return SAMPLE_SECONDS


def _open_nvml():
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # no package, no driver, no device: a machine without accelerators
        return None
    return nvml


def _sample_gpus(nvml) -> dict[str, float]:
    values: dict[str, float] = {}
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            device = nvml.nvmlDeviceGetHandleByIndex(index)
            prefix = f"system/gpu{index}"
            values[f"{prefix}/utilization_percent"] = float(nvml.nvmlDeviceGetUtilizationRates(device).gpu)
            values[f"{prefix}/memory_used_bytes"] = float(nvml.nvmlDeviceGetMemoryInfo(device).used)
            values[f"{prefix}/power_watts"] = nvml.nvmlDeviceGetPowerUsage(device) / 1000
    except nvml.NVMLError:
        return values
    return values
