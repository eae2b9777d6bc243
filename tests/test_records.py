"""One fact, one place: a unit and a wiring registered here, a dozen lines each, pass the suites of the package."""

from __future__ import annotations

import subprocess
import sys

import cases
import pytest
import test_gradients
import test_properties
import test_state_dict
import test_torch_features
import torch
from cases import BATCH, HIDDEN, INPUT, TIME, Case
from tolerance import assert_close
from torch import Tensor

from gfrnn import equations, layers, names, ops
from gfrnn.equations import Below, Past, Rows, Spec, State, Unit, Wiring, gated_sum, learnt_gates, times
from gfrnn.models import CharLM
from gfrnn.models.config import LayerConfig
from gfrnn.ops.call import Call


def leaky_unit(rows: list[Rows], below: Below, past: Past, h_prev: Tensor, c_prev: Tensor) -> tuple[Tensor, Tensor]:
    """A cell that forgets half, and an output gate."""
    (W_c, U_c, b_c), (W_o, U_o, b_o) = rows
    c = (c_prev + torch.tanh(times(W_c, below) + gated_sum(past.g, U_c, past.h_prev) + b_c)) / 2
    o = torch.sigmoid(times(W_o, below) + past.seen @ U_o.T + b_o)
    return o * torch.tanh(c), c


LEAKY = Unit("leaky", "leaky", ("c", "o"), "c", leaky_unit, has_cell=True)


class GFLeaky(layers.GatedFeedback):
    unit = "leaky"


def itself_and_above(j: int, L: int) -> range:
    return range(j, L)


DOWNWARD = Wiring("downward", itself_and_above, learnt_gates)
NEW = [
    Case("leaky", "gated", input_skip=True),
    Case("leaky", "stacked"),
    Case("lstm", "downward"),
    Case("gru", "downward", "own", input_skip=True),
    Case("tanh", "downward", bias=False),
    Case("leaky", "downward", "own"),
]
new_cases = pytest.mark.parametrize("case", NEW, ids=str)
fast_backends = pytest.mark.parametrize("backend", [name for name in cases.backends() if name != "reference"])


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(equations.UNITS, LEAKY.name, LEAKY)
    monkeypatch.setitem(equations.WIRINGS, DOWNWARD.name, DOWNWARD)
    monkeypatch.setitem(layers.LAYERS, LEAKY.name, GFLeaky)


@new_cases
def test_shapes(case: Case) -> None:
    layer = case.layer(output="all")
    output, *last, gates = cases.tensors(layer(cases.dense_input(), return_gates=True))
    assert output.shape == (TIME, BATCH, case.num_layers * HIDDEN)
    assert len(last) == 1 + layer.has_cell
    assert all(part.shape == (case.num_layers, BATCH, HIDDEN) for part in last)
    assert gates.shape == (TIME, BATCH, case.num_layers, case.num_layers)
    heard = [[i in equations.WIRINGS[case.wiring].hears(j, 3) for i in range(3)] for j in range(3)]
    assert torch.equal((gates != 0).all(0).all(0), torch.tensor(heard))


def test_names_and_shapes_of_the_parameters() -> None:
    found = {
        name: tuple(tensor.shape) for name, tensor in Case("leaky", "downward", "own").layer().state_dict().items()
    }
    for j, sources in enumerate((3, 2, 1)):
        below = INPUT if j == 0 else HIDDEN
        assert found.pop(f"weight_ih_l{j}") == (2 * HIDDEN, below)
        assert found.pop(f"weight_hh_l{j}") == (HIDDEN, HIDDEN)
        assert found.pop(f"weight_fb_l{j}") == (HIDDEN, sources * HIDDEN)
        assert found.pop(f"bias_l{j}") == (2 * HIDDEN,)
        assert found.pop(f"weight_ig_l{j}") == (sources, below)
        assert found.pop(f"weight_hg_l{j}") == (sources, 3 * HIDDEN)
        assert found.pop(f"bias_g_l{j}") == (sources,)
    assert not found


def test_the_wiring_is_what_it_says() -> None:
    """A stack without upper layers to hear: foreign blocks and gates at zero and one, it is the stacked layer."""
    downward, stacked = Case("lstm", "downward").layer(), Case("lstm", "stacked").layer(seed=1)
    with torch.no_grad():
        for name, own in stacked.named_parameters():
            if name.startswith("weight_hh"):
                downward.get_parameter(name).zero_()[:, :HIDDEN] = own  # its own layer is the first it hears
            else:
                downward.get_parameter(name).copy_(own)
        for j in range(3):
            downward.get_parameter(f"weight_ig_l{j}").zero_()
            downward.get_parameter(f"weight_hg_l{j}").zero_()
            downward.get_parameter(f"bias_g_l{j}").fill_(60.0)
    assert_close(downward(cases.dense_input())[0], stacked(cases.dense_input())[0])


@new_cases
def test_the_suites_of_the_package(case: Case) -> None:
    for kind in ("dense", "integer"):
        test_properties.test_step_by_step_is_the_whole_sequence(case, kind, "reference")
        test_properties.test_ragged_lengths_are_each_row_alone(case, kind, "reference")
    test_properties.test_two_halves_are_the_whole(case, "reference")
    test_properties.test_rows_of_the_batch_do_not_know_each_other(case, "reference")
    test_properties.test_integers_are_one_hot_vectors(case, "reference")
    test_state_dict.test_a_loaded_layer_is_the_saved_one(case)
    test_torch_features.test_copies_are_equal_and_apart(case, "reference")
    test_torch_features.test_meta_device(case)
    test_torch_features.test_function_transforms(case)


@new_cases
def test_derivatives(case: Case) -> None:
    test_gradients.test_gradcheck(case, "reference")
    test_gradients.test_gradgradcheck(case, "reference")


@fast_backends
@new_cases
def test_fast_backends_decline(case: Case, backend: str) -> None:
    missing = rf"unit '{case.unit}'" if case.unit == "leaky" else rf"wiring '{case.wiring}'"
    with pytest.raises(RuntimeError, match=rf"backend '{backend}' cannot run this call: it has no {missing}, only \w+"):
        case.layer(backend=backend)(cases.dense_input())


@new_cases
def test_auto_takes_the_reference(case: Case) -> None:
    layer = case.layer()
    call = Call(cases.dense_input(), State(*cases.state_of(case)), layer.weights(), layer.spec)
    assert ops.choose(call, "auto") == "reference"
    assert torch.equal(layer(call.x)[0], case.layer(backend="reference")(call.x)[0])


def test_a_model_of_a_new_unit_writes_text() -> None:
    """Neither the C++ loop nor the prepared steps know the unit: both leave it to the layer."""
    model = CharLM("leaky", hidden_size=8, num_layers=2, wiring="downward")
    assert len(model.generate("a", 5, seed=1)) == 5


@pytest.mark.parametrize("backend", ["auto", *cases.backends()])
@pytest.mark.parametrize(("unit", "wiring", "word"), [("warp", "gated", "unit"), ("lstm", "ring", "wiring")])
def test_what_nobody_registered_is_refused(unit: str, wiring: str, word: str, backend: str) -> None:
    layer = Case("lstm", "gated").layer()
    spec = Spec(unit, wiring, INPUT, HIDDEN, 3)
    with pytest.raises(ValueError, match=rf"{word} must be one of '\w+', .* got '(warp|ring)'"):
        ops.scan(cases.dense_input(), State(*cases.state_of(Case("lstm", "gated"))), layer.weights(), spec, backend)


def test_a_layer_of_an_unknown_unit_or_wiring_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unit must be one of .*'leaky'.* got 'warp'"):
        type("GFWarp", (layers.GatedFeedback,), {"unit": "warp"})(3, 4)
    with pytest.raises(ValueError, match=r"wiring must be one of .*'downward'.* got 'ring'"):
        layers.GFLSTM(3, 4, wiring="ring")


def test_the_command_line_reads_the_records() -> None:
    """Without running equations.py, which would import torch."""
    assert (*names.UNITS, "leaky") == tuple(equations.UNITS)
    assert (*names.WIRINGS, "downward") == tuple(equations.WIRINGS)
    assert LayerConfig(unit=names.UNITS[0], wiring=names.WIRINGS[-1])
    script = "import sys, gfrnn.models.config; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
