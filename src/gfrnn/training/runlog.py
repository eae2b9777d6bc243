"""The record of a run: metrics.jsonl (append-only, the truth) and env.json (where it ran)."""

import json
import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gfrnn.errors import DataError
from gfrnn.ops.doctor import cpu_name
from gfrnn.storage.files import replace_file
from gfrnn.storage.run_folder import ENVIRONMENT, METRICS
from gfrnn.training.trackers import Trackers

if TYPE_CHECKING:
    import torch

LINE_LIMIT = 1 << 20


class RunLog:
    """Appends one JSON object a line. A line torn by a crash is cut off when the file is opened again."""

    def __init__(self, run: Path, trackers: Trackers | None = None) -> None:
        self.path, self.trackers = run / METRICS, trackers or Trackers()
        cut_torn_line(self.path)
        self.file = self.path.open("ab", buffering=0)

    def write(self, kind: str, step: int, **values: Any) -> None:
        line = (json.dumps({"kind": kind, "step": step, **values}) + "\n").encode()
        while line:  # on a disk that is nearly full a part may be written, and only the rest is refused
            line = line[self.file.write(line) :]
        self.trackers.write(kind, step, values)

    def sync(self) -> None:
        os.fsync(self.file.fileno())

    def close(self) -> None:
        self.file.close()
        self.trackers.close()


def cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        tail = min(end, 1 << 16)
        file.seek(end - tail)
        whole = file.read(tail).rfind(b"\n") + 1
        if whole != tail:
            file.truncate(end - tail + whole)


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The run's history without what was done again.

    A "resume" at step s takes back what came after s. Of step s itself there may be records from after its checkpoint:
    they are made again, and the last of a kind counts.
    """
    path = run / METRICS
    if not path.is_file():
        raise DataError(f"{run} is not a run folder: it has no {METRICS}")
    history: list[dict[str, Any]] = []
    resumed = None
    for number, line in enumerate(lines_of(path), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            kind, step = record["kind"], record["step"]
            if not isinstance(kind, str) or type(step) is not int:
                raise ValueError("its kind is no text or its step no whole number")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if not line.endswith(b"\n") and len(line) < LINE_LIMIT:  # the last one, torn by a crash
                break
            raise DataError(f"{path}: line {number} is damaged: {error}") from error
        if kind == "start":  # once more from the beginning: killed before the first checkpoint
            history = []
        if kind == "resume":
            resumed = step
            history = [earlier for earlier in history if earlier["step"] <= step]
        elif step == resumed:
            history = [earlier for earlier in history if (earlier["kind"], earlier["step"]) != (kind, step)]
        history.append(record)
    return history


def lines_of(path: Path) -> Iterator[bytes]:
    """Line by line; one without end is cut, so that it cannot fill the memory."""
    with path.open("rb") as file:
        while line := file.readline(LINE_LIMIT):
            yield line


def environment(device: "torch.device | None" = None) -> dict[str, Any]:
    """Versions, CPU, threads, the device trained on, and the commit of the code."""
    import numpy
    import torch

    import gfrnn

    return {
        "gfrnn": gfrnn.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": "cpu" if device is None else device_name(device),
    }


def device_name(device: "torch.device") -> str:
    import torch

    name = getattr(torch.get_device_module(device), "get_device_name", None)
    return str(device) if name is None else f"{device} ({name(device)})"


def write_environment(run: Path, device: "torch.device | None" = None) -> None:
    replace_file(run / ENVIRONMENT, (json.dumps(environment(device), indent=1) + "\n").encode())


def commit() -> str | None:
    """The git commit of this source tree, with "+" when files differ from it; None outside a checkout."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10, check=True
        ).stdout

    try:
        changed = git("status", "--porcelain", "--untracked-files=no").strip()
        return git("rev-parse", "HEAD").strip() + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None
