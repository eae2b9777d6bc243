"""The precision of a model's matrix products, by name; what it is while a model runs."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gfrnn.errors import UsageError
from gfrnn.models.pretrained import find, read_config
from gfrnn.ops import cpu


def resolve(asked: str, device: str = "cpu") -> str:
    """Either "float32" or "bfloat16": "auto" is bfloat16 on a CPU that has an instruction for it.

    >>> resolve("bfloat16"), resolve("auto", "cuda:1")
    ('bfloat16', 'float32')
    """
    if asked == "auto":
        return "bfloat16" if device == "cpu" and cpu.multiplies_bfloat16() else "float32"
    return asked


def trained_in(model: str | Path) -> str:
    """The precision in which a saved model, or a run's best, was trained; float32 where nothing is said."""
    training = read_config(find(model)).get("training")
    return "bfloat16" if isinstance(training, dict) and training.get("precision") == "bfloat16" else "float32"


def precisely(precision: str, model: nn.Module) -> AbstractContextManager[Any]:
    """While it lasts, the products of `model` are in `precision`, a resolved one."""
    if precision == "float32":
        return nullcontext()
    if precision != "bfloat16":
        raise ValueError(f"a precision is float32 or bfloat16, not {precision!r}")
    for parameter in model.parameters():
        if parameter.device.type != "cpu":
            where = f"the model is on {parameter.device}"
            raise UsageError(f"--precision bfloat16 is for the CPU, and {where}: say --precision float32")
        if parameter.dtype != torch.float32:
            dtype = str(parameter.dtype).removeprefix("torch.")
            raise UsageError(f"--precision bfloat16 is for models in float32, and this one is in {dtype}")
    return torch.autocast("cpu", torch.bfloat16, cache_enabled=False)
