"""What programs read of torch's layers is there under the same names and says the same; what is not is listed."""

from __future__ import annotations

from typing import Any

import cases
import pytest
import torch
from cases import HIDDEN, INPUT, LAYERS, TORCH, Case, every_case, every_unit_of_torch
from torch import nn

# torch's own checks of a call, which are checks.py here; its two biases, of which we have the sum.
NOT_HERE = {"check_input", "check_hidden_size", "check_forward_args", "permute_hidden"}
NOT_HERE |= {"get_expected_hidden_size", "get_expected_cell_size"}
NOT_HERE |= {f"bias_{side}_l{j}" for side in ("ih", "hh") for j in (0, 1)}


def pair(unit: str, **options: Any) -> tuple[Any, Any]:
    return TORCH[unit](INPUT, HIDDEN, 2, **options), LAYERS[unit](INPUT, HIDDEN, 2, wiring="stacked", **options)


@every_unit_of_torch
@pytest.mark.parametrize("batch_first", [False, True])
def test_every_public_name_of_torchs_layers(unit: str, batch_first: bool) -> None:
    theirs, ours = pair(unit, batch_first=batch_first, dropout=0.25)
    names = {name for name in dir(theirs) if not name.startswith("_")}
    assert names - set(dir(ours)) == NOT_HERE & names
    said = {name: value for name, value in vars(theirs).items() if not name.startswith("_")}
    assert {"mode", "num_layers", "batch_first", "bidirectional", "proj_size"} < said.keys()
    assert {name: getattr(ours, name) for name in said} == said


@every_case
def test_all_weights_are_the_parameters(case: Case) -> None:
    layer = case.layer()
    assert len(layer.all_weights) == case.num_layers
    flat = [weight for weights in layer.all_weights for weight in weights]
    assert [id(weight) for weight in flat] == [id(parameter) for parameter in layer.parameters()]
    assert [id(weight) for weight in layer._flat_weights] == [id(weight) for weight in flat]
    assert layer._flat_weights_names == [name for name, _ in layer.named_parameters()]
    assert [name for names in layer._all_weights for name in names] == layer._flat_weights_names


@every_unit_of_torch
def test_weights_come_in_torchs_order(unit: str) -> None:
    theirs, ours = pair(unit)
    for their_weights, our_weights in zip(theirs.all_weights, ours.all_weights, strict=True):
        assert [w.shape for w in our_weights] == [w.shape for w in their_weights[:3]]  # one bias for torch's two


@every_case
def test_weights_may_be_computed_from_others(case: Case) -> None:
    """As weight norm does: the layer reads each weight anew at every call."""
    layer, x = case.layer(), cases.dense_input()
    before = layer(x)[0]
    nn.utils.parametrizations.weight_norm(layer, "weight_hh_l0")
    torch.testing.assert_close(layer(x)[0], before)
    layer(x)[0].sum().backward()
    assert layer.parametrizations.weight_hh_l0.original0.grad.any()
    assert layer.all_weights[0][1].shape == layer.weight_hh_l0.shape
