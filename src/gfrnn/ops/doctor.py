"""`gfrnn doctor`: what is installed, what the machine can do, and which backends run here, or why not."""

import os
import platform
from typing import Any

import torch

import gfrnn
from gfrnn import ops


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def facts() -> dict[str, Any]:
    """Everything `report` shows."""
    backends = {name: BACKEND.why_unavailable() for name, BACKEND in ops.BACKENDS.items()}
    return {
        "gfrnn": gfrnn.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.is_available(),
        "backends": {name: {"active": not reasons, "why_not": reasons} for name, reasons in backends.items()},
        "auto": next(name for name in ops.AUTO if not backends[name]),
        **ops.native_facts(),
    }
