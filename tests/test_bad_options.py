"""Options a layer cannot have: the exception types of torch.nn.LSTM, the argument and the choices in the message."""

from __future__ import annotations

import warnings
from typing import Any

import cases
import pytest
import torch
from cases import LAYERS
from torch import nn

every_unit = pytest.mark.parametrize("unit", cases.UNITS)
TORCH = {"tanh": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


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
