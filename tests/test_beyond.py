"""What the paper has not: normalised pre-activations, and the cell with i = 1 - f. Their numbers are held against the
oracle with all the others (cases.BEYOND); here is what they are for, and who declines them."""

from __future__ import annotations

from pathlib import Path

import cases
import pytest
import torch

from gfrnn import GFGRU, GFLSTM, GFBoundedLSTM, convert, ops
from gfrnn.equations import Scale, settled
from gfrnn.layers import LAYERS
from gfrnn.models import CharLM

every_backend = cases.every_backend


def test_settled_is_of_one_size_whatever_comes() -> None:
    a = torch.randn(5, 7, dtype=torch.float64)
    one = torch.ones(7, dtype=torch.float64)
    for size in (1.0, 1e3, 1e6):
        sizes = settled(size * a, Scale(one, 0.0)).square().mean(1)
        torch.testing.assert_close(sizes, torch.ones_like(sizes), atol=1e-3, rtol=0)  # epsilon's part
    torch.testing.assert_close(settled(a, Scale(2 * one, 3.0)), 2 * settled(a, Scale(one, 0.0)) + 3)
    assert torch.equal(settled(a, one), a + one)


@every_backend
@pytest.mark.parametrize("unit", LAYERS)
@pytest.mark.parametrize("normalise", [True, False])
def test_larger_weights_change_nothing_where_they_are_normalised(unit: str, normalise: bool, backend: str) -> None:
    x, outputs = cases.dense_input(), []
    for size in (1e4, 1e6):
        torch.manual_seed(1)
        layer = LAYERS[unit](5, 4, 2, wiring="stacked", normalise=normalise, dtype=torch.float64, backend=backend)
        with torch.no_grad():
            for name, parameter in layer.named_parameters():
                parameter *= (size if normalise else size / 1e4) if name.startswith("weight") else 1
        outputs.append(layer(x)[0])
    difference = (outputs[0] - outputs[1]).abs().max()
    assert difference < 1e-6 if normalise else difference > 0.1


@every_backend
def test_a_bounded_cell_never_leaves_its_bounds(backend: str) -> None:
    x = 50 * cases.dense_input(200, 3)
    layer = GFBoundedLSTM(cases.INPUT, 6, 2, dtype=torch.float64, input_std=5.0, backend=backend)
    _, (_, c) = layer(x)
    assert c.abs().max() <= 1
    usual = GFLSTM(cases.INPUT, 6, 2, dtype=torch.float64, input_std=5.0, forget_bias=5.0, backend=backend)
    assert usual(x)[1][1].abs().max() > 2


def test_gains_start_at_one_and_belong_to_the_state_dict() -> None:
    layer = GFGRU(3, 4, 2, normalise=True)
    gains = {name: value for name, value in layer.state_dict().items() if name.startswith("gain")}
    assert {name: tuple(value.shape) for name, value in gains.items()} == {"gain_l0": (12,), "gain_l1": (12,)}
    assert all((value == 1).all() for value in gains.values())
    assert "normalise=True" in repr(layer)
    with pytest.raises(RuntimeError, match="gain_l0"):
        GFGRU(3, 4, 2).load_state_dict(layer.state_dict())


def test_who_declines() -> None:
    with pytest.raises(ValueError, match="torch has no normalise=True"):
        convert.to_torch(GFLSTM(3, 4, wiring="stacked", normalise=True))
    with pytest.raises(TypeError, match="got GFBoundedLSTM"):
        convert.to_torch(GFBoundedLSTM(3, 4, wiring="stacked"))
    with pytest.raises(TypeError, match="normalise"):
        GFLSTM(3, 4, normalise="rms")
    assert "bounded-lstm" in ops.BACKENDS["manual"].implements.units


@pytest.mark.parametrize("options", [{"normalise": True}, {"unit": "bounded-lstm"}])
def test_a_saved_model_keeps_it(options: dict[str, object], tmp_path: Path) -> None:
    model = CharLM(**{"unit": "lstm", "hidden_size": 6, "num_layers": 2, **options})
    model.save_pretrained(tmp_path / "model")
    again = CharLM.from_pretrained(tmp_path / "model")
    assert (again.layer.unit, again.layer.normalise) == (model.layer.unit, model.layer.normalise)
    assert (again.score(b"the same") == model.score(b"the same")).all()
