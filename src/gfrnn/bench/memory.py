"""Memory of a training step: what is kept for the backward, and the peak of a process that does one step."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gfrnn.bench.contenders import batch, build, cost, train_step
from gfrnn.bench.plan import Size
from gfrnn.this_python import running


def kept_bytes(model: nn.Module, ids: Tensor, targets: Tensor, products: str = "float32") -> int:
    """Bytes that autograd (a fused op's saved buffers too) holds between forward and backward, parameters not counted.

    Tensors that share memory count once.
    """
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    held: dict[int, Tensor] = {}  # the tensors too, so that no address is used twice

    def pack(tensor: Tensor) -> Tensor:
        held[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    rounding = torch.autocast("cpu", torch.bfloat16, enabled=products == "bfloat16")
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), rounding:
        loss = cost(model, ids, targets)
    del loss
    return sum(tensor.untyped_storage().nbytes() for address, tensor in held.items() if address not in own)


def peak_bytes(contender: str, size: Size, rows: int, steps: int) -> int:
    """How far one training step raises a fresh process's resident memory above what it was before."""
    asked = {"contender": contender, "size": vars(size), "rows": rows, "steps": steps}
    command = [*running("gfrnn.bench.memory"), json.dumps(asked | {"threads": torch.get_num_threads()})]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the process that measures peak memory failed: {done.stderr.strip()[-500:]}")
    return int(done.stdout)


def forget_peak() -> None:
    """From here on the most there ever was counts from now (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def resident() -> tuple[int, int]:
    """Bytes of this process in memory: now, and the most there ever were."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the parent had when it forked
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return tuple(int(lines[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM"))  # type: ignore[return-value]
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return most, most


def measure_peak(asked: dict[str, Any]) -> int:
    torch.set_num_threads(asked["threads"])
    model = build(asked["contender"], Size(**asked["size"]))
    train_step(model, *batch(2, 2))  # loads what is loaded on first use
    forget_peak()
    before, _ = resident()
    train_step(model, *batch(asked["rows"], asked["steps"]))
    return max(0, resident()[1] - before)


if __name__ == "__main__":
    print(measure_peak(json.loads(sys.argv[1])))
