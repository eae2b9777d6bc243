"""A device that is not there: "far" holds its numbers on the CPU, and none of its tensors may meet one of the CPU's.

As on a GPU, only copies and single numbers (tensors of no dimension) go from one to the other. It takes the place that
torch keeps for other people's devices, once and for all of a process, so there is a process that has it: `far` asks it.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

FAR = "far:0"
LIBRARY = torch.library.Library("_", "IMPL")
aten = torch.ops.aten
COPIES = (aten._to_copy.default, aten.copy_.default, aten._foreach_copy_.default)


class FarTensor(Tensor):
    """A tensor that says it is far away; `near` has its numbers."""

    near: Tensor

    @staticmethod
    def __new__(cls, near: Tensor) -> FarTensor:
        strides, offset = near.stride(), near.storage_offset()
        options: dict[str, Any] = {"strides": strides, "storage_offset": offset, "dtype": near.dtype, "device": FAR}
        made: FarTensor = Tensor._make_wrapper_subclass(cls, near.shape, **options)  # type: ignore[attr-defined]
        made.near = near
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return carry_out(op, args, kwargs or {})

    def tolist(self) -> Any:  # torch's own is not for subclasses
        return self.near.tolist()

    def new_tensor(self, data: Any) -> Tensor:  # nor is this
        return FarTensor(self.near.new_tensor(data))

    def __repr__(self, **options: Any) -> str:
        return f"FarTensor({self.near})"


def carry_out(op: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    given = list(singly((*args, *kwargs.values())))
    far = any(isinstance(one, FarTensor) for one in given)
    if far and op not in COPIES:
        for one in given:
            if isinstance(one, Tensor) and not isinstance(one, FarTensor) and one.dim() > 0:
                raise RuntimeError(f"{op}: tensors on two devices, {FAR} and {one.device}")
    wanted = [one.type for one in given if isinstance(one, torch.device)]
    target = wanted[0] if wanted else "far" if far else "cpu"
    with torch.inference_mode(False):  # of which views of such tensors know nothing
        result = op(*map(nearer, args), **{name: nearer(value) for name, value in kwargs.items()})
        if op._schema.is_mutable:  # what was changed is returned as it came
            return given_back(op, args, kwargs, result)
        return wrap(result) if target == "far" else result


def singly(values: Iterable[Any]) -> Iterator[Any]:
    """What an operation is given, those in lists too: there are none in others."""
    for value in values:
        yield from value if isinstance(value, list | tuple) else (value,)


def nearer(value: Any) -> Any:
    if isinstance(value, FarTensor):
        return value.near
    if isinstance(value, list | tuple):
        return [nearer(one) for one in value]
    return torch.device("cpu") if isinstance(value, torch.device) else value


def wrap(value: Any) -> Any:
    if isinstance(value, Tensor):
        return FarTensor(value)
    return type(value)(map(wrap, value)) if type(value) in (list, tuple) else value


def given_back(op: Any, args: Any, kwargs: dict[str, Any], result: Any) -> Any:
    """In-place and out= operations return their argument itself."""
    named = dict(zip((a.name for a in op._schema.arguments), args, strict=False)) | kwargs
    changed = [named.get(a.name) for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    if result is None:
        return None
    return changed[0] if not isinstance(result, tuple) else tuple(changed)


def arrive() -> None:
    """Have the device in this process."""
    torch.set_num_threads(1)
    os.fsync = os.fstat  # type: ignore[assignment]  # as in conftest.py
    _setup_privateuseone_for_python_backend("far")
    LIBRARY.fallback(lambda op, *args, **kwargs: carry_out(op, args, kwargs), "PrivateUse1")  # makes tensors there
    make = torch.tensor  # which copies in a way that goes past us
    torch.tensor = lambda data, device=None, **options: make(data, **options).to(device)


@functools.cache
def there() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), arrive)


def far(function: Callable[..., Any], *args: Any) -> Any:
    """What function(*args) returns in a process that has the device."""
    return there().submit(function, *args).result()
