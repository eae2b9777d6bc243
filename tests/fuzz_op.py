"""Calls of the operators with arguments spoilt in every way: each must raise, or answer with finite numbers of the
right shapes; the same numbers in a strange layout must give the same answer.

    python fuzz_op.py CALLS [SEED]     prints how many calls raised and how many answered, as JSON

A crash takes the process with it, so the tests run this in one of its own.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import cases
import op_calls
import torch
from op_calls import Arguments
from problems import Problem
from torch import Tensor

REFUSALS = (RuntimeError, NotImplementedError, IndexError, TypeError, ValueError)
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64)
INTEGERS = (torch.bool, torch.uint8, torch.int32, torch.int64)
STRANGE_INTEGERS = (-(2**63), -(2**31), -3, -1, 0, 1, 2, 3, 4, 7, 1000, 2**31, 2**40, 2**62, 2**63 - 1)
STRANGE_NUMBERS = (float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e-300, 0.5, 1.0, 2.0, 1e300)


class Same:
    """Marks a change that keeps every number."""

    def __init__(self, value: Any) -> None:
        self.value = value


def freed(t: Tensor) -> Tensor:
    t = t.clone()
    t.untyped_storage().resize_(0)
    return t


def every_other(t: Tensor) -> Tensor:
    return torch.stack([t, t], -1)[..., 0]


def turned(t: Tensor) -> Tensor:
    return t.transpose(0, -1).contiguous().transpose(0, -1) if t.dim() > 1 else t


def overlapping(t: Tensor) -> Tensor:
    return t.flatten()[:1].expand(t.shape) if t.numel() else t


def other_size(t: Tensor, r: random.Random) -> Tensor:
    shape = list(t.shape)
    if not shape:
        return t[None]
    d = r.randrange(len(shape))
    shape[d] = max(0, shape[d] + r.choice((-shape[d], -1, 1, 3)))
    return t.new_ones(shape)


TENSOR_CHANGES: list[Callable[[Tensor, random.Random], Any]] = [
    lambda t, r: t.to(r.choice(DTYPES)),
    lambda t, r: (t * 3).to(r.choice(INTEGERS)),
    lambda t, r: t.to("meta"),
    lambda t, r: other_size(t, r),
    lambda t, r: other_size(t, r),
    lambda t, r: t[None],
    lambda t, r: t[0] if t.dim() and len(t) else t,
    lambda t, r: t.flatten(),
    lambda t, r: t.transpose(0, -1) if t.dim() else t,
    lambda t, r: t.new_empty(0),
    lambda t, r: t.new_ones(()),
    lambda t, r: freed(t),
    lambda t, r: t.to_sparse() if t.dim() else t,
    lambda t, r: overlapping(t),
    lambda t, r: None,
    lambda t, r: 3,
    lambda t, r: [t],
    lambda t, r: Same(every_other(t)),
    lambda t, r: Same(turned(t)),
    lambda t, r: Same(torch.cat([t.flatten()[:1], t.flatten()])[1:].view(t.shape)),  # not aligned
    lambda t, r: Same(torch._neg_view(-t) if t.is_floating_point() else t),
    lambda t, r: Same(torch.nn.Parameter(t) if t.is_floating_point() else t),
]


def changed_integers(name: str, t: Tensor, r: random.Random) -> Tensor:
    """Indices and lengths out of range, or out of order."""
    t = t.clone()
    if t.numel():
        t.flatten()[r.randrange(t.numel())] = r.choice(STRANGE_INTEGERS)
    return t.flip(0) if name == "lengths" and r.random() < 0.3 else t


def changed_list(tensors: list[Tensor], r: random.Random) -> list[Any]:
    tensors = list(tensors)
    at = r.randrange(len(tensors))
    match r.randrange(5):
        case 0:
            return tensors[:at]
        case 1:
            return [*tensors, tensors[at]]
        case 2:
            r.shuffle(tensors)
        case 3:
            tensors.insert(at, tensors[-1])
        case _:
            change = r.choice(TENSOR_CHANGES)(tensors[at], r)
            tensors[at] = change.value if isinstance(change, Same) else change
    return tensors


def spoil(name: str, value: Any, r: random.Random) -> Any:
    """`value`, changed; a Same if no number is another."""
    if isinstance(value, list):
        return changed_list(value, r)
    if isinstance(value, Tensor):
        if not value.is_floating_point() and value.dtype != torch.uint8 and r.random() < 0.5:
            return changed_integers(name, value, r)
        return r.choice(TENSOR_CHANGES)(value, r)
    if isinstance(value, bool):
        return r.choice((not value, not value, None, "yes"))
    if isinstance(value, int):
        return r.choice(STRANGE_INTEGERS)
    if isinstance(value, float):
        return r.choice(STRANGE_NUMBERS)
    return r.choice((torch.ones(2, 3), torch.ones(3, dtype=torch.int64), 0))  # was None


def problem(r: random.Random) -> Problem:
    return Problem(
        r.choice(cases.UNITS),
        r.choice(cases.WIRINGS),
        hidden=r.choice((1, 3, 17)),
        time=r.choice((1, 2, 5)),
        batch=r.choice((0, 1, 2, 7)),
        num_layers=r.choice((1, 2, 3)),
        gates_see=r.choice(("all", "own")),
        input_skip=r.random() < 0.5,
        bias=r.random() < 0.8,
        indices=r.random() < 0.5,
        ragged=r.random() < 0.3,
        dropout=r.random() < 0.3,
        normalise=r.random() < 0.3,
    )


def finite(results: Any, arguments: Arguments) -> bool:
    """Nothing infinite in what is promised: c and what is kept have no meaning beyond a row's end."""
    promised = list(results)[:4] if "keep" in arguments and arguments.get("lengths") is not None else list(results)
    return all(t.isfinite().all() for t in promised if t.device.type != "meta" and t.is_floating_point())


Operator = tuple[Callable[[Arguments], Any], Callable[[Arguments], list[tuple[int, ...]]] | None, Arguments]


def operator(which: str, r: random.Random) -> Operator:
    """An operator, the shapes it promises, and good arguments."""
    dtype = r.choice((torch.float32, torch.float64))
    if which in ("forward", "backward"):
        arguments = op_calls.forward_arguments(problem(r), dtype)
        arguments["bfloat16"] = dtype == torch.float32 and r.random() < 0.5
    if which == "forward":
        return op_calls.forward, op_calls.forward_shapes, arguments
    if which == "backward":
        arguments = op_calls.backward_arguments(arguments)
        del arguments["keep"], arguments["return_gates"]
        return op_calls.backward, op_calls.backward_shapes, arguments
    arguments = op_calls.pack_arguments(problem(r))
    if which == "pack":
        return (lambda a: [op_calls.pack(a)]), None, arguments
    return op_calls.draw, op_calls.draw_shapes, op_calls.draw_arguments(arguments)


def one_call(which: str, r: random.Random) -> str:
    call, shapes, good = operator(which, r)
    arguments, same = dict(good), True
    for name in r.sample(sorted(good), r.choice((1, 1, 1, 2))):
        value = spoil(name, good[name], r)
        same = same and isinstance(value, Same)
        arguments[name] = value.value if isinstance(value, Same) else value
    try:
        results = call(arguments)
    except REFUSALS:
        assert not same, "refused a layout it should read"
        return "raised"
    if shapes is not None:
        assert [tuple(t.shape) for t in results] == shapes(arguments), "wrong shapes"
    if same:
        assert finite(results, arguments), "not finite"
        expected = call(good)
        promised = len(expected) if good.get("lengths") is None else min(4, len(expected))
        for found, truth in list(zip(results, expected, strict=True))[:promised]:
            assert torch.equal(found, truth), "another answer to the same numbers"
    elif which != "draw" and not any(isinstance(v, Tensor) and v.dtype == torch.uint8 for v in arguments.values()):
        assert finite(results, arguments), "not finite"
    return "answered"


def main(calls: int, seed: int) -> None:
    torch.set_num_threads(1)
    found: Counter[str] = Counter()
    for number in range(calls):
        r = random.Random(f"{seed} {number}")
        which = r.choice(("forward", "forward", "backward", "backward", "pack", "draw"))
        try:
            found[one_call(which, r)] += 1
        except BaseException:
            print(f"call {number} of seed {seed}, {which}", file=sys.stderr)
            raise
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
