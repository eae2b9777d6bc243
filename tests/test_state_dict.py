"""What files hold: parameter names and shapes, pinned in state_dict.json; and how a new layer starts."""

from __future__ import annotations

import json
from pathlib import Path

import cases
import pytest
import torch
from cases import HIDDEN, INPUT, Case, every_case

PINNED = json.loads((Path(__file__).parent / "state_dict.json").read_text())


@every_case
def test_names_and_shapes_are_pinned(case: Case) -> None:
    found = {name: list(tensor.shape) for name, tensor in case.layer().state_dict().items()}
    assert found == PINNED[str(case)]


def test_every_pinned_layout_is_a_case() -> None:
    assert set(PINNED) == {str(case) for case in cases.CASES}


@every_case
def test_a_loaded_layer_is_the_saved_one(case: Case) -> None:
    saved, other, x = case.layer(seed=1), case.layer(seed=2), cases.dense_input()
    assert not torch.equal(saved(x)[0], other(x)[0])
    other.load_state_dict(saved.state_dict())
    assert torch.equal(saved(x)[0], other(x)[0])


def test_a_foreign_layout_is_refused() -> None:
    with pytest.raises(RuntimeError, match="weight_hh_l0"):
        Case("lstm", "gated").layer().load_state_dict(Case("lstm", "stacked").layer().state_dict(), strict=False)


@every_case
def test_initial_values(case: Case) -> None:
    layer = cases.LAYERS[case.unit](INPUT, HIDDEN, dtype=torch.float64, **case.options)
    identity = torch.eye(HIDDEN, dtype=torch.float64)
    for name, parameter in layer.named_parameters():
        if name.startswith("bias"):
            assert not parameter.any(), name
        elif name.startswith("gain"):
            assert (parameter == 1).all(), name
        elif name.startswith(("weight_hh", "weight_fb")):
            for rows in parameter.split(HIDDEN):
                for block in rows.split(HIDDEN, dim=1):
                    torch.testing.assert_close(block @ block.T, identity, rtol=0, atol=1e-12)
        else:
            assert 0.04 < parameter.abs().max() <= 0.08, name


def test_forget_bias_and_reset_parameters() -> None:
    layer = cases.LAYERS["lstm"](INPUT, HIDDEN, 2, forget_bias=1.5)
    for _ in range(2):
        for name in ("bias_l0", "bias_l1"):
            i, f, g, o = getattr(layer, name).split(HIDDEN)
            assert (f == 1.5).all()
            assert not torch.cat([i, g, o]).any()
        with torch.no_grad():
            layer.bias_l0.fill_(7.0)
        before = layer.weight_ih_l0.clone()
        layer.reset_parameters()
        assert not torch.equal(before, layer.weight_ih_l0)


def test_initialisation_is_a_function_of_the_seed() -> None:
    layers = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        layers.append(cases.LAYERS["gru"](INPUT, HIDDEN, 2))
    same, again, other = (layer.weight_hh_l1 for layer in layers)
    assert torch.equal(same, again)
    assert not torch.equal(same, other)
