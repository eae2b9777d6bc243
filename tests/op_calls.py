"""Arguments for the operators themselves, as the backend would hand them over, and what must come back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import problems
import torch
from problems import WIDTH, Problem
from torch import Tensor

from gfrnn.equations import EPSILON, UNITS, WIRINGS
from gfrnn.ops import cpu

FORWARD = (
    "x",
    "h0",
    "c0",
    "weights",
    "lengths",
    "masks",
    "unit",
    "wiring",
    "input_size",
    "own",
    "input_skip",
    "epsilon",
    "bfloat16",
)
SWITCHES = ("keep", "return_gates")
GIVEN = ("dh", "dh_n", "dc_n", "dgates")
KEPT = ("h", "c", "saved")
BACKWARD = (*GIVEN, *FORWARD[:6], *KEPT, *FORWARD[6:], "need_dx")

Arguments = dict[str, Any]


def forward_arguments(problem: Problem, dtype: torch.dtype = torch.float32) -> Arguments:
    """Of scan_forward, by name: all kept, nothing asks for a gradient."""
    tensors = {name: tensor.detach() for name, tensor in problems.given(problem, dtype).items()}
    lengths = tensors.get("lengths")
    return {
        "x": tensors["x"],
        "h0": tensors["h0"],
        "c0": tensors.get("c0"),
        "weights": [tensor for name, tensor in tensors.items() if "_l" in name],
        "lengths": None if lengths is None else lengths.sort(descending=True).values,
        "masks": tensors.get("masks"),
        "unit": cpu.UNITS.index(problem.unit),
        "wiring": cpu.WIRINGS.index(problem.wiring),
        "input_size": WIDTH,
        "own": problem.gates_see == "own",
        "input_skip": problem.input_skip,
        "epsilon": EPSILON if problem.case.normalise else 0.0,
        "bfloat16": False,
        "keep": True,
        "return_gates": True,
    }


def backward_arguments(arguments: Arguments) -> Arguments:
    """Of scan_backward, after scan_forward with `arguments`; the gradients given are small and not all equal."""
    h, h_n, c_n, gates, c, saved = forward(arguments)
    given = dict(zip(GIVEN, (h, h_n, c_n, gates), strict=True))
    given = {
        name: None if t.dim() == 1 else torch.linspace(-1, 1, t.numel()).to(t).view_as(t) for name, t in given.items()
    }
    if arguments["lengths"] is not None:  # the op writes nothing beyond a row's end
        ended = torch.arange(h.shape[0])[:, None] >= arguments["lengths"]
        c, saved = (t if t.dim() == 1 else t.masked_fill(ended[:, :, None], 0.0) for t in (c, saved))
    kept = {"h": h, "c": c, "saved": saved}
    return {**arguments, **given, **kept, "need_dx": True}


def forward(arguments: Arguments) -> tuple[Tensor, ...]:
    return torch.ops.gfrnn.scan_forward(*(arguments[name] for name in (*FORWARD, *SWITCHES)))


def backward(arguments: Arguments) -> list[Tensor]:
    return torch.ops.gfrnn.scan_backward(*(arguments[name] for name in BACKWARD))


def forward_shapes(a: Arguments) -> list[tuple[int, ...]]:
    """What scan_forward must return for arguments it accepts."""
    (T, B), (L, _, H) = a["x"].shape[:2], a["h0"].shape
    unit, wiring = UNITS[cpu.UNITS[a["unit"]]], WIRINGS[cpu.WIRINGS[a["wiring"]]]
    lstm, gated = unit.has_cell, wiring.gates is not None
    row = L * (len(unit.gates) * H + L * gated + H * (unit.name == "gru"))  # a GRU's gated sum is kept
    row += L * len(unit.gates) * (a["epsilon"] > 0)
    empty = (0,)
    return [
        (T, B, L * H),
        (L, B, H),
        (L, B, H) if lstm else empty,
        (T, B, L, L) if gated and a["return_gates"] else empty,
        (T, B, L * H) if lstm else empty,
        (T, B, row) if a["keep"] else empty,
    ]


def backward_shapes(a: Arguments) -> list[tuple[int, ...]]:
    """What scan_backward must return for arguments it accepts."""
    state = tuple(a["h0"].shape)
    dx = tuple(a["x"].shape) if a["need_dx"] and a["x"].is_floating_point() else (0,)
    return [dx, state, state if a["c0"] is not None else (0,), *(tuple(w.shape) for w in a["weights"])]


TEXTS = 2
PACK = ("h", "c", "weights", "head", "head_bias", "unit", "wiring", "own", "input_skip", "epsilon", "half")
DRAW = ("packed", "logits", *PACK[:5], "uniform", "temperature", "top_k", "top_p", *PACK[5:])


def pack_arguments(problem: Problem) -> Arguments:
    """Of generate_pack, by name: a network over WIDTH symbols with a softmax on all layers."""
    a = forward_arguments(replace(problem, batch=TEXTS, indices=True))
    generator = torch.Generator().manual_seed(9)
    head = torch.randn(WIDTH, problem.num_layers * problem.hidden, generator=generator)
    taken = {name: a[name] for name in ("weights", "unit", "wiring", "own", "input_skip", "epsilon")}
    return {"h": a["h0"], "c": a["c0"], **taken, "head": head, "head_bias": head[:, 0].clone(), "half": False}


def draw_arguments(arguments: Arguments) -> Arguments:
    """Of generate, after generate_pack with `arguments`."""
    uniform = torch.linspace(0, 0.99, 5 * TEXTS, dtype=torch.float64).view(TEXTS, 5)
    drawing = {"uniform": uniform, "temperature": 0.8, "top_k": 4, "top_p": 0.9}
    logits = torch.linspace(-1, 1, TEXTS * WIDTH).view(TEXTS, WIDTH)
    return {**arguments, **drawing, "packed": pack(arguments), "logits": logits}


def pack(arguments: Arguments) -> Tensor:
    return torch.ops.gfrnn.generate_pack(*(arguments[name] for name in PACK))


def draw(arguments: Arguments) -> tuple[Tensor, ...]:
    return torch.ops.gfrnn.generate(*(arguments[name] for name in DRAW))


def draw_shapes(a: Arguments) -> list[tuple[int, ...]]:
    state = tuple(a["h"].shape)
    logits = tuple(a["logits"].shape)
    return [tuple(a["uniform"].shape), logits, state, state if a["c"] is not None else (0,)]
