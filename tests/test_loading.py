"""State_dicts of torch.nn's own layers: adopted where they fit exactly, refused in a sentence where they do not."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import cases
import pytest
import torch
from cases import HIDDEN, INPUT
from torch import nn

from gfrnn import convert

TORCH = {"tanh": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
every_unit = pytest.mark.parametrize("unit", cases.PAPER)


def theirs(unit: str, num_layers: int = 2, **options: Any) -> nn.RNNBase:
    module = TORCH[unit](INPUT, HIDDEN, num_layers, dtype=torch.float64, **options)
    return without_inner_bias(module) if unit == "gru" else module


def without_inner_bias(module: nn.RNNBase) -> nn.RNNBase:
    with torch.no_grad():
        for j in range(module.num_layers):
            getattr(module, f"bias_hh_l{j}")[2 * module.hidden_size :] = 0
    return module


def ours(unit: str, num_layers: int = 2, **options: Any) -> Any:
    options = {"wiring": "stacked", **options}
    return cases.LAYERS[unit](INPUT, HIDDEN, num_layers, dtype=torch.float64, **options)


def same(one: Any, other: Any) -> None:
    x = cases.dense_input()
    for a, b in zip(cases.tensors(one(x)), cases.tensors(other(x)), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-14)


@every_unit
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("assign", [True, False])
def test_torchs_own_parameters_load_into_a_stack(unit: str, strict: bool, assign: bool) -> None:
    module, layer = theirs(unit), ours(unit)
    given = module.state_dict()
    found = layer.load_state_dict(given, strict=strict, assign=assign)
    assert (found.missing_keys, found.unexpected_keys) == ([], [])
    assert set(given) == set(module.state_dict())  # the caller's own is left alone
    same(layer, module)


@every_unit
def test_they_load_inside_a_model_and_into_copies(unit: str) -> None:
    outer = nn.ModuleDict({"below": nn.Linear(2, 2), "rnn": theirs(unit)})
    for twin in (ours(unit), copy.deepcopy(ours(unit)), pickle.loads(pickle.dumps(ours(unit)))):
        model = nn.ModuleDict({"below": nn.Linear(2, 2), "rnn": twin})
        model.load_state_dict(outer.state_dict())
        same(model["rnn"], outer["rnn"])
        assert torch.equal(model["below"].weight, outer["below"].weight)


REFUSED = [
    (theirs("lstm"), ours("lstm", wiring="gated"), "this layer is 'gated'"),
    (theirs("lstm", 1), ours("lstm", 1, wiring="gated"), "this layer is 'gated'"),
    (theirs("lstm"), ours("lstm", wiring="feedback"), "this layer is 'feedback'"),
    (theirs("lstm"), ours("lstm", 3), "weight_ih_l2 is missing there and"),
    (theirs("lstm", 3), ours("lstm"), r"weight_ih_l2 is \(16, 4\) there and missing here"),
    (theirs("lstm"), ours("lstm", bias=False), r"bias_ih_l0 is \(16,\) there and missing here"),
    (theirs("lstm"), ours("lstm", input_skip=True), r"weight_ih_l1 is \(16, 4\) there and \(16, 9\) here"),
    (theirs("lstm"), ours("gru"), r"weight_ih_l0 is \(16, 5\) there and \(12, 5\) here"),
    (theirs("tanh", 1, bidirectional=True), ours("tanh", 1), "weight_ih_l0_reverse is"),
    (theirs("lstm", proj_size=2), ours("lstm"), "weight_hh_l0 is"),
    (nn.GRU(INPUT, HIDDEN, dtype=torch.float64), ours("gru", 1), r"bias_hh_l0\[8:\] .*inner_bias='drop'"),
]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(("module", "layer", "reason"), REFUSED, ids=[reason for _, _, reason in REFUSED])
def test_what_does_not_fit_is_refused_and_names_the_way(module: Any, layer: Any, reason: str, strict: bool) -> None:
    with pytest.raises(RuntimeError, match=r"gfrnn\.convert\.from_torch.*" + reason):
        layer.load_state_dict(module.state_dict(), strict=strict)


def test_a_new_gru_can_be_converted_without_its_inner_bias() -> None:
    gru, x = nn.GRU(INPUT, HIDDEN, 2, dtype=torch.float64), cases.dense_input()
    with pytest.raises(ValueError, match=r"bias_hh_l0\[8:\] .* set it to zero .*, or .*inner_bias='drop'"):
        convert.from_torch(gru)
    layer = convert.from_torch(gru, inner_bias="drop")
    assert gru.bias_hh_l0[2 * HIDDEN :].all()  # theirs is left alone
    assert (layer(x)[0] - gru(x)[0]).abs().max() > 1e-3
    same(layer, without_inner_bias(gru))
    same(convert.from_torch(gru), gru)  # what the sentence says first
    with pytest.raises(ValueError, match="inner_bias must be 'refuse' or 'drop', got 'fold'"):
        convert.from_torch(gru, inner_bias="fold")


@every_unit
def test_conversion_draws_nothing(unit: str) -> None:
    module = theirs(unit)
    before = torch.get_rng_state()
    convert.from_torch(module)
    assert torch.equal(torch.get_rng_state(), before)
