"""What equals what: a stack is torch's RNN, GRU or LSTM, and the wirings become one another where they should."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cases
import pytest
import torch
from cases import HIDDEN, INPUT, TORCH, Case, every_backend, every_unit_of_torch
from hypothesis import given
from hypothesis import strategies as st
from tolerance import assert_all_close
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from gfrnn import convert
from gfrnn.equations import UNITS

every_unit = pytest.mark.parametrize("unit", cases.PAPER)


@st.composite
def setups(draw: st.DrawFn) -> dict[str, Any]:
    """Sizes, layout and ragged lengths."""
    size = st.integers(1, 5)
    time, batch = draw(st.integers(1, 6)), draw(size)
    return {
        "sizes": (draw(size), draw(size), draw(st.integers(1, 3))),
        "bias": draw(st.booleans()),
        "batch_first": draw(st.booleans()),
        "lengths": draw(st.lists(st.integers(1, time), min_size=batch, max_size=batch)),
        "layout": draw(st.sampled_from(["batched", "unbatched", "packed"])),
        "state": draw(st.booleans()),
        "seed": draw(st.integers(0, 1000)),
    }


def torch_module(unit: str, setup: dict[str, Any]) -> nn.RNNBase:
    torch.manual_seed(setup["seed"])
    options = {name: setup[name] for name in ("bias", "batch_first")}
    module = TORCH[unit](*setup["sizes"], dtype=torch.float64, **options)
    if unit == "gru" and setup["bias"]:
        with torch.no_grad():  # the paper's GRU has no bias under the reset gate
            for j in range(module.num_layers):
                getattr(module, f"bias_hh_l{j}")[2 * module.hidden_size :] = 0
    return module


def call(layer: Any, setup: dict[str, Any]) -> list[torch.Tensor]:
    """Output and last state for an input made from `setup`, then the gradients of the input and of h_0."""
    generator = torch.Generator().manual_seed(setup["seed"])
    width, hidden, num_layers = setup["sizes"]
    lengths, batch_first = setup["lengths"], setup["batch_first"]
    batched = setup["layout"] != "unbatched"
    batch = (len(lengths),) if batched else ()
    shape = (*batch, max(lengths), width) if batch_first else (max(lengths), *batch, width)
    x = torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
    count = 2 if isinstance(layer, (nn.LSTM, cases.LAYERS["lstm"])) else 1
    state = [
        torch.randn(num_layers, *batch, hidden, generator=generator, dtype=torch.float64, requires_grad=True)
        for _ in range(count)
    ]
    packed = setup["layout"] == "packed"
    given_input = pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False) if packed else x
    output, last = layer(given_input, cases.as_hx(state) if setup["state"] else None)
    results = [output.data if packed else output, *cases.tensors(last)]
    total = sum((part * (k + 1)).sin().sum() for k, part in enumerate(results))
    wanted = [x, *state] if setup["state"] else [x]
    return results + list(torch.autograd.grad(total, wanted))


@every_backend
@every_unit_of_torch
@given(setup=setups())
def test_from_torch(unit: str, backend: str, setup: dict[str, Any]) -> None:
    theirs = torch_module(unit, setup)
    ours = convert.from_torch(theirs)
    ours.backend = backend
    assert (ours.wiring, ours.batch_first, ours.bias) == ("stacked", setup["batch_first"], setup["bias"])
    assert_all_close(call(ours, setup), call(theirs, setup))


@every_backend
@every_unit_of_torch
@given(setup=setups())
def test_to_torch_and_back(unit: str, backend: str, setup: dict[str, Any]) -> None:
    width, hidden, num_layers = setup["sizes"]
    case = Case(unit, "stacked", bias=setup["bias"], num_layers=num_layers)
    ours = case.layer(width, hidden, batch_first=setup["batch_first"], seed=setup["seed"], backend=backend)
    theirs = convert.to_torch(ours)
    assert type(theirs) is TORCH[unit]
    assert_all_close(call(theirs, setup), call(ours, setup))
    again = convert.from_torch(theirs).state_dict()
    assert again.keys() == ours.state_dict().keys()
    for name, tensor in ours.state_dict().items():
        assert torch.equal(tensor, again[name]), name


@every_unit_of_torch
def test_conversion_keeps_dropout_mode_and_dtype(unit: str) -> None:
    theirs = TORCH[unit](INPUT, HIDDEN, 2, bias=False, dropout=0.5, dtype=torch.float64).eval()
    ours = convert.from_torch(theirs)
    assert (ours.dropout, ours.training, ours.weight_ih_l0.dtype) == (0.5, False, torch.float64)
    back = convert.to_torch(ours)
    assert (back.dropout, back.training, back.weight_ih_l0.dtype) == (0.5, False, torch.float64)


def test_conversion_copies() -> None:
    theirs = nn.LSTM(INPUT, HIDDEN)
    ours = convert.from_torch(theirs)
    with torch.no_grad():
        theirs.weight_ih_l0.fill_(0)
    assert ours.weight_ih_l0.all()


REFUSED_FROM = [
    (lambda: nn.LSTM(3, 4, bidirectional=True), ValueError, "bidirectional"),
    (lambda: nn.LSTM(3, 4, proj_size=2), ValueError, "proj_size"),
    (lambda: nn.RNN(3, 4, nonlinearity="relu"), ValueError, "relu"),
    (lambda: nn.GRU(3, 4), ValueError, "bias_hh_l0"),
    (lambda: nn.LSTMCell(3, 4), TypeError, "LSTMCell"),
    (lambda: nn.Linear(3, 4), TypeError, "Linear"),
]


@pytest.mark.parametrize(("make", "kind", "word"), REFUSED_FROM)
def test_from_torch_says_what_it_cannot_represent(make: Any, kind: type[Exception], word: str) -> None:
    with pytest.raises(kind, match=word):
        convert.from_torch(make())


REFUSED_TO = [
    ({"wiring": "gated"}, "gated"),
    ({"wiring": "feedback"}, "feedback"),
    ({"wiring": "stacked", "input_skip": True}, "input_skip"),
    ({"wiring": "stacked", "output": "all"}, "output"),
]


@pytest.mark.parametrize(("options", "word"), REFUSED_TO)
@every_unit_of_torch
def test_to_torch_says_what_it_cannot_represent(unit: str, options: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        convert.to_torch(cases.LAYERS[unit](3, 4, 2, **options))


def test_to_torch_takes_only_our_layers() -> None:
    with pytest.raises(TypeError, match="Linear"):
        convert.to_torch(nn.Linear(3, 4))  # type: ignore[arg-type]


def candidate_rows(case: Case, j: int) -> tuple[str, slice]:
    """The parameter that holds layer j's candidate recurrent weights, and its rows there."""
    if case.gates_see == "own" and cases.differs(case.unit, case.wiring):
        return f"weight_fb_l{j}", slice(None)
    first = candidate_at(case.unit)
    return f"weight_hh_l{j}", slice(first, first + HIDDEN)


def candidate_at(unit: str) -> int:
    record = UNITS[unit]
    return record.place(record.candidate) * HIDDEN


def expect_same_answers(one: Any, other: Any, case: Case) -> None:
    x, state = cases.dense_input(), cases.as_hx(cases.state_of(case))
    lengths = torch.tensor([3, cases.TIME])
    for layer in (one, other):
        layer.output = "all"
    assert_all_close(cases.tensors(one(x, state, lengths=lengths)), cases.tensors(other(x, state, lengths=lengths)))


@every_backend
@pytest.mark.parametrize("case", [case for case in cases.CASES if case.wiring == "gated"], ids=str)
def test_gates_held_at_one_half_are_feedback_with_halved_candidates(case: Case, backend: str) -> None:
    gated = case.layer(backend=backend)
    feedback = replace(case, wiring="feedback").layer(backend=backend)
    with torch.no_grad():
        for name, parameter in gated.named_parameters():
            if name.startswith(("weight_ig", "weight_hg", "bias_g")):
                parameter.zero_()
            else:
                feedback.get_parameter(name).copy_(parameter)
        for j in range(case.num_layers):
            name, rows = candidate_rows(case, j)
            feedback.get_parameter(name)[rows] *= 0.5
    expect_same_answers(gated, feedback, case)


@every_backend
@pytest.mark.parametrize("gates_see", ["all", "own"])
@every_unit
def test_one_layer_of_feedback_is_one_stacked_layer(unit: str, gates_see: str, backend: str) -> None:
    """With L = 1, and the gate pushed to 1 where there is one, all wirings are the plain unit."""
    stacked_case = Case(unit, "stacked", num_layers=1)
    stacked = stacked_case.layer(backend=backend)
    for wiring in ("feedback", "gated"):
        case = Case(unit, wiring, gates_see, num_layers=1)
        layer = case.layer(backend=backend)
        with torch.no_grad():
            if candidate_rows(case, 0)[0] == "weight_fb_l0":
                U, first = stacked.weight_hh_l0, candidate_at(unit)
                layer.weight_fb_l0.copy_(U[first : first + HIDDEN])
                layer.weight_hh_l0.copy_(torch.cat([U[:first], U[first + HIDDEN :]]))
            else:
                layer.weight_hh_l0.copy_(stacked.weight_hh_l0)
            layer.weight_ih_l0.copy_(stacked.weight_ih_l0)
            layer.bias_l0.copy_(stacked.bias_l0)
            if wiring == "gated":
                layer.bias_g_l0.fill_(50.0)
        expect_same_answers(layer, stacked, stacked_case)


# Without a bias the gates cannot be pushed to 1.
CAN_BECOME_STACKS = [
    case
    for case in cases.CASES
    if case.gates_see == "all" and (case.wiring == "feedback" or (case.wiring == "gated" and case.bias))
]


@every_backend
@pytest.mark.parametrize("case", CAN_BECOME_STACKS, ids=str)
def test_feedback_without_foreign_blocks_is_a_stack(case: Case, backend: str) -> None:
    """Blocks U^{i->j}, i != j, set to 0 (and gates to 1) leave the conventional stack."""
    stacked_case = replace(case, wiring="stacked", gates_see="all")
    layer, stacked = case.layer(backend=backend), stacked_case.layer(backend=backend)
    with torch.no_grad():
        for name, parameter in stacked.named_parameters():
            if name.startswith("weight_hh"):
                j = int(name[-1])
                wide = layer.get_parameter(name).zero_()
                wide[:, j * HIDDEN : (j + 1) * HIDDEN] = parameter
            else:
                layer.get_parameter(name).copy_(parameter)
            if case.wiring == "gated":
                layer.get_parameter(f"bias_g_l{name[-1]}").fill_(60.0)
    expect_same_answers(layer, stacked, stacked_case)
