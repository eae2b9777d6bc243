"""Whole scans to hold one backend against another: sizes, options, and every number that comes out."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cases
import torch
from cases import Case
from tolerance import assert_answers_close
from torch import Tensor

from gfrnn import ops
from gfrnn.equations import UNITS, WIRINGS, State

WIDTH = 7

# Sizes around registers, tiles and blocks, and the paper's own.
SIZES: dict[str, Sequence[Any]] = {
    "unit": cases.UNITS,
    "wiring": cases.WIRINGS,
    "hidden": (1, 5, 140, 165, 191, 303),
    "time": (1, 2, 37, 100),
    "batch": (1, 3, 100),
    "num_layers": (1, 2, 3, 5),
}
OPTIONS: dict[str, Sequence[Any]] = {
    "gates_see": ("all", "own"),
    "input_skip": (False, True),
    "bias": (True, False),
    "indices": (False, True),
    "ragged": (False, True),
    "dropout": (False, True),
    "normalise": (False, True),
}


@dataclass(frozen=True)
class Problem:
    """One scan: a network, its sizes, and what it is given."""

    unit: str
    wiring: str
    hidden: int = 5
    time: int = 6
    batch: int = 3
    num_layers: int = 3
    gates_see: str = "all"
    input_skip: bool = False
    bias: bool = True
    indices: bool = False
    ragged: bool = False
    dropout: bool = False
    normalise: bool = False

    def __str__(self) -> str:
        sizes = f"H{self.hidden}-T{self.time}-B{self.batch}"
        switches = [name for name in ("indices", "ragged", "dropout") if getattr(self, name)]
        return "-".join([str(self.case), sizes, *switches])

    @property
    def case(self) -> Case:
        # Of a single number a normalisation leaves the sign, which hangs on the last bit where the number is near 0.
        normalise = self.normalise and self.hidden > 1
        options = (self.gates_see, self.input_skip, self.bias, self.num_layers, normalise)
        return Case(self.unit, self.wiring, *options)

    @property
    def cost(self) -> float:
        """About how long it takes, in steps of a small network: for choosing among problems only."""
        wide = len(WIRINGS[self.wiring].hears(0, self.num_layers))
        gates = len(UNITS[self.unit].gates)
        work = self.num_layers * gates * self.hidden**2 * (wide + 1) * (self.batch + 3)
        return 3.0 + self.time * self.num_layers * (1.0 + work / 2e6)


Given = dict[str, Tensor]  # x, h0, c0, masks, lengths and every weight
Answer = dict[str, Tensor]  # output, h_n, c_n, gates, and the gradient of each leaf


@functools.lru_cache(maxsize=1)  # one problem after another is given to every backend
def drawn(problem: Problem) -> Given:
    """The numbers, all representable in float32."""
    layer = problem.case.layer(WIDTH, problem.hidden)
    # Tame: on the edge of chaos rounding errors multiply, and only luck tells which of two computations is nearer.
    tensors = {name: tensor * (0.6 if tensor.dim() > 1 else 1.0) for name, tensor in layer.state_dict().items()}
    time, batch = problem.time, problem.batch
    make_input = cases.integer_input if problem.indices else cases.dense_input
    tensors["x"] = make_input(time, batch, WIDTH)
    states = cases.state_of(problem.case, batch, problem.hidden)
    tensors.update(zip(("h0", "c0"), states, strict=False))
    generator = torch.Generator().manual_seed(3)
    if problem.dropout:
        shape = (time, batch, problem.num_layers - 1, problem.hidden)
        tensors["masks"] = (torch.rand(shape, generator=generator) < 0.6).double() / 0.6
    if problem.ragged:
        tensors["lengths"] = torch.randint(1, time + 1, (batch,), generator=generator)
    return {name: tensor.detach().float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


def given(problem: Problem, dtype: torch.dtype) -> Given:
    """The same numbers in any dtype, nobody else's. What floats is a leaf, but the masks."""
    tensors = {}
    for name, tensor in drawn(problem).items():
        floats = tensor.is_floating_point()
        own = tensor.to(dtype if floats else tensor.dtype, copy=True)
        tensors[name] = own.requires_grad_(floats and name != "masks")
    return tensors


def run(problem: Problem, backend: str, tensors: Given, products: torch.dtype | None = None) -> Answer:
    """Outputs, last state, gates, and the gradient of every leaf, for cotangents on all that has one."""
    weights = {name: tensor for name, tensor in tensors.items() if "_l" in name}
    scanned = ops.scan(
        tensors["x"],
        State(tensors["h0"], tensors.get("c0")),
        cases.scan_weights(weights),
        problem.case.spec(WIDTH, problem.hidden),
        backend,
        lengths=tensors.get("lengths"),
        dropout_masks=tensors.get("masks"),
        return_gates=True,
        products=products,
    )
    named = {"output": scanned.h, "h_n": scanned.state.h, "c_n": scanned.state.c, "gates": scanned.gates}
    found = {name: tensor for name, tensor in named.items() if tensor is not None}
    roots = [tensor for tensor in found.values() if tensor.requires_grad]
    generator = torch.Generator().manual_seed(5)
    # Small enough that a weight's gradient, a sum over all rows and timesteps, is of order 1.
    scale = max(problem.time * problem.batch, 1) ** -0.5
    cotangents = [(torch.randn(root.shape, generator=generator) * scale).to(root.dtype) for root in roots]
    leaves = {name: tensor for name, tensor in tensors.items() if tensor.requires_grad}
    gradients = torch.autograd.grad(roots, list(leaves.values()), cotangents, allow_unused=True)
    for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
        found[f"gradient of {name}"] = torch.zeros_like(leaf) if gradient is None else gradient
    return {name: tensor.detach() for name, tensor in found.items()}


def solve(problem: Problem, backend: str, dtype: torch.dtype, products: torch.dtype | None = None) -> Answer:
    return run(problem, backend, given(problem, dtype), products)


def assert_agree(
    problem: Problem,
    found: Answer,
    truth: Answer,
    same_dtype: Answer | None = None,
    products: torch.dtype | None = None,
) -> None:
    """Every number agrees, by the policy of tolerance.py."""
    terms = max(problem.time * problem.batch, problem.num_layers * problem.hidden + WIDTH)
    assert_answers_close(found, truth, same_dtype, terms, products)


def assert_equal_bits(found: Answer, expected: Answer) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name]), f"{name} differs"


def covering(seed: int = 0) -> list[Problem]:
    """A short, cheap list in which every two values of different axes of SIZES and OPTIONS meet."""
    axes = {**SIZES, **OPTIONS}
    generator = random.Random(seed)
    missing = {((a, x), (b, y)) for a, b in itertools.combinations(axes, 2) for x in axes[a] for y in axes[b]}
    chosen = []
    while missing:
        wanted = min(missing, key=str)
        candidates = [
            {**{axis: generator.choice(values) for axis, values in axes.items()}, **dict(wanted)} for _ in range(100)
        ]
        best = max(candidates, key=lambda c: len(_pairs(c) & missing) / Problem(**c).cost)
        missing -= _pairs(best)
        chosen.append(Problem(**best))
    return chosen


def _pairs(values: dict[str, Any]) -> set[tuple[tuple[str, Any], tuple[str, Any]]]:
    return set(itertools.combinations(values.items(), 2))


def product(**fixed: Any) -> Iterator[Problem]:
    """Every combination of SIZES with the given values; the options take turns."""
    axes = {**SIZES, **{name: (value,) for name, value in fixed.items()}}
    options = itertools.cycle([dict(zip(OPTIONS, v, strict=True)) for v in itertools.product(*OPTIONS.values())])
    for values in itertools.product(*axes.values()):
        yield replace(Problem(**dict(zip(axes, values, strict=True))), **next(options))
