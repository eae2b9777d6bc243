"""Options a layer cannot have: the exception types of torch.nn.LSTM, the argument and the choices in the message."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import LAYERS, TORCH, every_unit_of_torch
from torch import nn

every_unit = every_unit_of_torch


def theirs(unit: str, *arguments: Any, **options: Any) -> type[Exception]:
    with pytest.raises(Exception) as caught:
        TORCH[unit](*arguments, **options)
    return caught.type


@every_unit
@pytest.mark.parametrize("name", ["input_size", "hidden_size", "num_layers"])
@pytest.mark.parametrize("size", [0, -1, 2.0, "2", None, 2.5])
def test_sizes_are_positive_ints(unit: str, name: str, size: Any) -> None:
    sizes = {"input_size": 3, "hidden_size": 4, "num_layers": 2, name: size}
    with pytest.raises(Exception, match=name) as caught:
        LAYERS[unit](**sizes)
    # torch takes an input_size that is no number further than it should.
    if not (name == "input_size" and not isinstance(size, int)):
        assert caught.type is theirs(unit, *sizes.values())
    assert caught.type is (ValueError if isinstance(size, int) else TypeError)


@every_unit
@pytest.mark.parametrize("name", ["input_size", "hidden_size", "num_layers"])
def test_true_is_no_size(unit: str, name: str) -> None:
    with pytest.raises(TypeError, match=name):
        LAYERS[unit](**{"input_size": 3, "hidden_size": 4, "num_layers": 2, name: True})


CHOICES = {"wiring": ["gated", "feedback", "stacked"], "gates_see": ["all", "own"], "output": ["last", "all"]}


@every_unit
@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("value", ["sideways", "", "Gated", None, 1, True])
def test_a_bad_choice_names_the_choices(unit: str, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name) as caught:
        LAYERS[unit](3, 4, **{name: value})
    for choice in CHOICES[name]:
        assert repr(choice) in str(caught.value)
    assert repr(value) in str(caught.value)


@every_unit
def test_a_bad_backend_names_the_choices(unit: str) -> None:
    with pytest.raises(ValueError, match=r"backend.*'auto'.*'reference'.*'warp'"):
        LAYERS[unit](3, 4, backend="warp")


@every_unit
@pytest.mark.parametrize(("name", "value"), [("bidirectional", True), ("proj_size", 2)])
def test_what_a_feedback_network_cannot_have(unit: str, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name) as caught:
        LAYERS[unit](3, 4, 2, **{name: value})
    assert len(str(caught.value).split()) > 8, "it must say why"
    LAYERS[unit](3, 4, 2, **{name: type(value)(0)})


@pytest.mark.parametrize("unit", ["tanh", "gru"])
def test_proj_size_of_a_gru_and_an_rnn_in_torchs_words(unit: str) -> None:
    messages = []
    for kind in (TORCH[unit], LAYERS[unit]):
        with pytest.raises(ValueError) as caught:
            kind(30, 20, 2, proj_size=10)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_nonlinearity() -> None:
    for options in ({}, {"nonlinearity": "tanh"}):
        assert LAYERS["tanh"](3, 4, 2, **options).nonlinearity == nn.RNN(3, 4, 2, **options).nonlinearity == "tanh"
    for kind in (LAYERS["tanh"], nn.RNN):  # torch's fourth place
        layer = kind(3, 4, 2, "tanh", False, True)
        assert (layer.bias, layer.batch_first, layer.nonlinearity) == (False, True, "tanh")
    assert LAYERS["tanh"](3, 4, 2, False, True).batch_first
    for arguments, options in (((3, 4, 2, "relu"), {}), ((3, 4), {"nonlinearity": "relu"})):
        with pytest.raises(ValueError, match="nonlinearity='relu': the paper's simple unit is tanh"):
            LAYERS["tanh"](*arguments, **options)
    for kind in (LAYERS["tanh"], nn.RNN):
        with pytest.raises(ValueError, match="Unknown nonlinearity 'garbage'"):
            kind(3, 4, nonlinearity="garbage")
    for unit in ("gru", "lstm"):
        for kind in (LAYERS[unit], TORCH[unit]):
            with pytest.raises(TypeError, match="nonlinearity"):
                kind(3, 4, nonlinearity="tanh")


@every_unit
def test_the_warning_about_dropout_points_at_the_line_that_asked(unit: str) -> None:
    with pytest.warns(UserWarning, match="num_layers greater than 1") as caught:
        LAYERS[unit](3, 4, dropout=0.5)
    assert caught[0].filename == __file__
    assert "LAYERS[unit](3, 4, dropout=0.5)" in Path(__file__).read_text().splitlines()[caught[0].lineno - 1]


@every_unit
@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), "a", True, None])
def test_dropout(unit: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="dropout") as caught:
        LAYERS[unit](3, 4, 2, dropout=value)
    if isinstance(value, float) and value == value:
        assert caught.type is theirs(unit, 3, 4, 2, dropout=value)


@every_unit
def test_dropout_in_one_layer_warns_as_torch_does(unit: str) -> None:
    for kind in (LAYERS[unit], TORCH[unit]):
        with pytest.warns(UserWarning, match="num_layers greater than 1"):
            kind(3, 4, 1, dropout=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LAYERS[unit](3, 4, 2, dropout=0.5)


@every_unit
@pytest.mark.parametrize("name", ["bias", "batch_first"])
def test_flags(unit: str, name: str) -> None:
    with pytest.raises(TypeError, match=name):
        LAYERS[unit](3, 4, **{name: 1})
    assert theirs(unit, 3, 4, **{name: 1}) is TypeError
    with pytest.raises(TypeError, match="input_skip"):
        LAYERS[unit](3, 4, input_skip="yes")


@pytest.mark.parametrize("value", ["1", None, float("inf"), float("nan"), True])
def test_forget_bias(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="forget_bias"):
        LAYERS["lstm"](3, 4, forget_bias=value)
    with pytest.raises((TypeError, ValueError), match="forget"):
        LAYERS["gru"](3, 4, forget_bias=1.0)


@pytest.mark.parametrize("value", ["1", None, float("inf"), float("nan"), True, -0.5])
def test_input_std(value: Any) -> None:
    with pytest.raises(ValueError, match="input_std must be a finite number, 0 or more"):
        LAYERS["lstm"](3, 4, input_std=value)


@every_unit
def test_unknown_option_dtype_and_device(unit: str) -> None:
    for options in ({"colour": 1}, {"dtype": torch.int64}, {"device": "nowhere"}):
        assert raised_type(unit, options) is theirs(unit, 3, 4, **options)


def raised_type(unit: str, options: dict[str, Any]) -> type[Exception]:
    with pytest.raises(Exception) as caught:
        LAYERS[unit](3, 4, **options)
    return caught.type


@every_unit
def test_keyword_only_options_stay_so(unit: str) -> None:
    """The positional ones are torch's own; ours cannot be mistaken for them."""
    with pytest.raises(TypeError, match="positional"):
        LAYERS[unit](3, 4, 1, True, False, 0.0, False, None, None, "gated")
    with pytest.raises(TypeError, match="positional"):
        LAYERS[unit](3, 4)(torch.zeros(2, 1, 3), None, torch.tensor([2]))
