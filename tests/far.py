"""A device that is not there: "far" holds its numbers on the CPU, and none of its tensors may meet one of the CPU's.

As on a GPU, only copies and single numbers (tensors of no dimension) go from one to the other. It takes the place that
torch keeps for other people's devices, once and for all of a process, so there is a process that has it: `far` asks it.
"""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
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
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    far = [tensor for tensor in tensors if isinstance(tensor, FarTensor)]
    strangers = [tensor for tensor in tensors if not isinstance(tensor, FarTensor) and tensor.dim() > 0]
    if far and strangers and op not in COPIES:
        raise RuntimeError(f"{op}: tensors on two devices, {FAR} and {strangers[0].device}")
    wanted = [leaf.type for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.device)]
    target = wanted[0] if wanted else "far" if far else "cpu"
    near_args, near_kwargs = tree_map(nearer, (args, kwargs))
    with torch.inference_mode(False):  # of which views of such tensors know nothing
        result = op(*near_args, **near_kwargs)
        if op._schema.is_mutable:  # what was changed is returned as it came
            return given_back(op, args, kwargs, result)
        return tree_map(wrap, result) if target == "far" else result


def nearer(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return value.near if isinstance(value, FarTensor) else value


def wrap(value: Any) -> Any:
    return FarTensor(value) if isinstance(value, Tensor) else value


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
