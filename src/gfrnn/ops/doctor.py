"""`gfrnn doctor`: what is installed, what the machine can do, and which backends run here, or why not."""

import json as jsonlib
import os
import platform
import sys
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


def report(json: bool = False) -> int:
    """Print the facts; 0, since a missing backend costs speed, not correctness."""
    found = facts()
    if json:
        print(jsonlib.dumps(found, indent=2))
        return 0
    from rich.console import Console
    from rich.table import Table

    console = Console(file=sys.stdout)
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in found.items():
        if name not in ("backends", "auto"):
            table.add_row(name.replace("_", " "), str(value))
    console.print(table, "")
    backends = Table("backend", "state", "why not", box=None, pad_edge=False)
    for name in ops.AUTO:
        state = found["backends"][name]
        label = "active" if state["active"] else "not here"
        backends.add_row(name, label + (" (auto)" if name == found["auto"] else ""), "; ".join(state["why_not"]))
    console.print(backends)
    return 0
