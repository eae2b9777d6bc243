"""The sizes of the paper's models, to the last parameter: 205 symbols in, a softmax over 205 out, all counted."""

from __future__ import annotations

from typing import Any

import cases
import pytest
import torch

SYMBOLS = 205
SINGLE: dict[str, Any] = {"wiring": "stacked"}
STACKED: dict[str, Any] = {"wiring": "stacked"}
STACKED_SKIP: dict[str, Any] = {"wiring": "stacked", "input_skip": True}
GATED_OWN: dict[str, Any] = {"wiring": "gated", "input_skip": True, "gates_see": "own"}
GATED: dict[str, Any] = {"wiring": "gated", "input_skip": True}
FEEDBACK: dict[str, Any] = {"wiring": "feedback", "input_skip": True}

COUNTS = [
    ("lstm", 1, 456, SINGLE, 1_301_173),
    ("lstm", 3, 191, STACKED, 927_892),
    ("lstm", 3, 191, STACKED_SKIP, 1_319_442),
    ("lstm", 3, 140, GATED_OWN, 948_459),
    ("lstm", 3, 140, GATED, 1_301_259),
    ("gru", 1, 540, SINGLE, 1_319_425),
    ("gru", 3, 228, STACKED, 968_977),
    ("gru", 3, 228, STACKED_SKIP, 1_342_897),
    ("gru", 3, 165, GATED_OWN, 986_614),
    ("gru", 3, 165, GATED, 1_313_314),
    ("tanh", 1, 1000, SINGLE, 1_411_205),
    ("tanh", 3, 390, STACKED, 921_775),
    ("tanh", 3, 390, STACKED_SKIP, 1_241_575),
    ("tanh", 3, 303, GATED_OWN, 1_395_556),
    ("tanh", 3, 303, GATED, 1_395_556),
    ("lstm", 3, 191, GATED, 2_203_143),  # Gated Feedback L
    ("gru", 3, 228, GATED, 2_287_987),  # Gated Feedback L
    ("lstm", 3, 140, FEEDBACK, 1_294_785),
    ("lstm", 5, 700, GATED, 60_548_355),
]


@pytest.mark.parametrize(("unit", "num_layers", "hidden", "options", "count"), COUNTS)
def test_count(unit: str, num_layers: int, hidden: int, options: dict[str, Any], count: int) -> None:
    # With skips the softmax reads every layer's h_t, without only the last one's.
    output = "all" if options.get("input_skip") else "last"
    layer = cases.LAYERS[unit](SYMBOLS, hidden, num_layers, output=output, device="meta", **options)
    width = hidden * (num_layers if output == "all" else 1)
    softmax = torch.nn.Linear(width, SYMBOLS, device="meta")
    modules = (layer, softmax)
    assert sum(parameter.numel() for module in modules for parameter in module.parameters()) == count
    assert layer(torch.zeros(2, 1, dtype=torch.long, device="meta"))[0].shape == (2, 1, width)
