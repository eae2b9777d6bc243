"""Every unit x wiring x option, listed once; each suite loops over it and over the backends that run here."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import oracle
import pytest
import torch
from torch import Tensor

from gfrnn import convert, equations, ops
from gfrnn.equations import Spec, Weights
from gfrnn.layers import LAYERS, GatedFeedback
from gfrnn.ops.declared import Transform
from gfrnn.parameters import FIELDS

PAPER = tuple(unit.name for unit in equations.PAPER)
UNITS, WIRINGS = tuple(equations.UNITS), tuple(equations.WIRINGS)
TORCH = {ours.unit: theirs for theirs, ours in convert.PAIRS.items()}  # the units that torch has too

# All different, so that no axis can stand in for another.
TIME, BATCH, NUM_LAYERS, HIDDEN, INPUT = 6, 2, 3, 4, 5


@dataclass(frozen=True)
class Case:
    """One kind of network."""

    unit: str
    wiring: str
    gates_see: str = "all"
    input_skip: bool = False
    bias: bool = True
    num_layers: int = NUM_LAYERS
    normalise: bool = False

    def __str__(self) -> str:
        parts = [self.unit, self.wiring, f"L{self.num_layers}"]
        parts += ["own"] * (self.gates_see == "own") + ["skip"] * self.input_skip + ["nobias"] * (not self.bias)
        parts += ["norm"] * self.normalise
        return "-".join(parts)

    @property
    def has_gates(self) -> bool:
        """Whether it has global reset gates to learn."""
        return equations.WIRINGS[self.wiring].gates is not None

    @property
    def options(self) -> dict[str, Any]:
        return {
            "num_layers": self.num_layers,
            "bias": self.bias,
            "wiring": self.wiring,
            "gates_see": self.gates_see,
            "input_skip": self.input_skip,
            "normalise": self.normalise,
        }

    def spec(self, input_size: int = INPUT, hidden_size: int = HIDDEN) -> Spec:
        sizes = (input_size, hidden_size, self.num_layers)
        return Spec(self.unit, self.wiring, *sizes, self.gates_see, self.input_skip, self.normalise)

    def layer(self, input_size: int = INPUT, hidden_size: int = HIDDEN, **more: Any) -> Any:
        """The layer, in float64 unless told otherwise, every parameter (the biases too) drawn anew.

        Scaled by fan-in, so that a step does not multiply rounding errors and float32 can be judged by one policy.
        """
        torch.default_generator.manual_seed(more.pop("seed", 0))
        with mock.patch.object(GatedFeedback, "reset_parameters", leave):  # its orthogonal blocks take long
            layer = LAYERS[self.unit](input_size, hidden_size, **{"dtype": torch.float64, **self.options, **more})
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.normal_(std=0.6 if parameter.dim() == 1 else parameter.shape[1] ** -0.5)
        return layer


def leave(layer: GatedFeedback) -> None:
    """As it is."""


def differs(unit: str, wiring: str) -> bool:
    """Whether gates_see="own" is another network: not for a unit without gates, nor where a layer hears only itself."""
    return Spec(unit, wiring, INPUT, HIDDEN, NUM_LAYERS, "own").apart


# What is not of the paper: a few of each, since an option of ours meets the same code as those of the paper.
BEYOND = [
    Case("bounded-lstm", "gated", input_skip=True),
    Case("bounded-lstm", "gated", "own", bias=False),
    Case("bounded-lstm", "stacked"),
    Case("tanh", "gated", input_skip=True, normalise=True),
    Case("gru", "gated", normalise=True),
    Case("gru", "feedback", "own", bias=False, normalise=True),
    Case("gru", "stacked", normalise=True),
    Case("lstm", "gated", "own", input_skip=True, normalise=True),
    Case("lstm", "stacked", bias=False, normalise=True),
    Case("bounded-lstm", "feedback", input_skip=True, normalise=True),
]
KINDS = [
    (unit, wiring, gates_see)
    for unit, wiring, gates_see in itertools.product(PAPER, WIRINGS, ("all", "own"))
    if gates_see == "all" or differs(unit, wiring)
]
CASES = [
    *(Case(*kind, *options) for kind in KINDS for options in itertools.product((False, True), (True, False))),
    *(Case(*kind, num_layers=1) for kind in KINDS),
    # where gates_see must change nothing
    *(
        Case(unit, wiring, "own", input_skip=len(equations.UNITS[unit].gates) > 1)
        for unit in PAPER
        for wiring in WIRINGS
        if not differs(unit, wiring)
    ),
    *BEYOND,
]

# One of each unit, wiring and layout, for what does not depend on every option.
MAIN = [
    *(Case(unit, wiring, input_skip=wiring == "gated") for unit in PAPER for wiring in WIRINGS),
    *(Case(unit, "gated", "own") for unit in PAPER if differs(unit, "gated")),
    *(BEYOND[i] for i in (0, 4)),
]

every_unit_of_torch = pytest.mark.parametrize("unit", TORCH)
every_case = pytest.mark.parametrize("case", CASES, ids=str)
main_cases = pytest.mark.parametrize("case", MAIN, ids=str)


def taking_turns(
    names: str, *values: Sequence[Any], among: Sequence[Case] = CASES, whole: Sequence[Case] = MAIN
) -> pytest.MarkDecorator:
    """Parametrizes `case` and `names` ("kind, backend", with the values of each).

    Each case `among` them meets one combination of the values, and those that are `whole` meet all; none meets a
    backend that declines it.
    """
    found, every = [], [dict(zip(names.split(", "), one, strict=True)) for one in itertools.product(*values)]
    for n, case in enumerate(among):
        able = backends_of(case.unit, case.wiring, case.normalise)
        combinations = [one for one in every if one.get("backend", able[0]) in able]
        turn = (n + n // 4) % len(combinations)  # four neighbours are one network with all options
        found += [(case, *one.values()) for k, one in enumerate(combinations) if k == turn or case in whole]
    return pytest.mark.parametrize(("case", *names.split(", ")), found, ids=str)


gated_cases = pytest.mark.parametrize("case", [case for case in MAIN if case.has_gates], ids=str)


def backends() -> list[str]:
    """Every backend of the package that runs on this machine."""
    return [name for name, backend in ops.BACKENDS.items() if not backend.why_unavailable()]


def backends_of(unit: str, wiring: str, normalise: bool = False) -> list[str]:
    """Those of them that declare to have such a network."""
    spec = Spec(unit, wiring, INPUT, HIDDEN, NUM_LAYERS, normalise=normalise)
    return [name for name in backends() if not ops.BACKENDS[name].implements.why_not_kind(spec)]


def backends_twice_differentiable() -> list[str]:
    return [name for name in backends() if Transform.SECOND_DERIVATIVES in ops.BACKENDS[name].implements.transforms]


every_backend = pytest.mark.parametrize("backend", backends())
# For what follows from the oracle's test of every case on every backend, or depends on few options.
backends_take_turns = taking_turns("backend", backends())


def state_of(case: Case, batch: int = BATCH, hidden: int = HIDDEN, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """A non-zero initial state: [h0], or [h0, c0] for an LSTM."""
    generator = torch.Generator().manual_seed(11)
    count = 2 if equations.UNITS[case.unit].has_cell else 1
    shape = (case.num_layers, batch, hidden)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for _ in range(count)]


def as_hx(state: list[Tensor]) -> Any:
    """What a layer takes as hx: a tensor, or a pair for an LSTM."""
    return tuple(state) if len(state) == 2 else state[0]


def tensors(result: Any) -> list[Tensor]:
    """Every tensor of a layer's answer, flat and in order: output, h_n, (c_n), (gates)."""
    if isinstance(result, Tensor):
        return [result]
    return [tensor for part in result for tensor in tensors(part)]


def dense_input(time: int = TIME, batch: int = BATCH, width: int = INPUT, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(time, batch, width, generator=generator, dtype=torch.float64).to(dtype)


def integer_input(time: int = TIME, batch: int = BATCH, width: int = INPUT) -> Tensor:
    return torch.randint(0, width, (time, batch), generator=torch.Generator().manual_seed(7))


def numpy_weights(layer: Any) -> dict[str, Any]:
    return {name: tensor.detach().double().numpy() for name, tensor in layer.state_dict().items()}


def ask_oracle(case: Case, layer: Any, x: Tensor, state: list[Tensor], **options: Any) -> oracle.Result:
    """The oracle's answer to the same weights, input and state."""
    h0, c0 = state[0].double().numpy(), state[1].double().numpy() if len(state) == 2 else None
    return oracle.run(
        case.unit,
        case.wiring,
        numpy_weights(layer),
        x.numpy(),
        h0,
        c0,
        **oracle_options(case, x, layer),
        **options,
    )


def oracle_options(case: Case, x: Tensor, layer: Any) -> dict[str, Any]:
    return {
        "input_skip": case.input_skip,
        "input_size": None if x.is_floating_point() else layer.input_size,
    }


def scan_weights(tensors_by_name: dict[str, Tensor]) -> list[Any]:
    """A state_dict as what `ops.scan` takes, one Weights per layer."""
    count = sum(name.startswith("weight_ih_l") for name in tensors_by_name)
    return [
        Weights(**{field: tensors_by_name.get(f"{name}_l{j}") for name, field in FIELDS.items()}) for j in range(count)
    ]
