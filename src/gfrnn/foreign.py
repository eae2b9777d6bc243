"""The parameters of torch.nn.RNN, GRU and LSTM under our names: what `load_state_dict` and convert.py read.

torch's layers are the stacked wiring with two biases. Its GRU swaps z (sigma(-a) = 1 - sigma(a): the rows of z change
sign) and has a second bias inside the reset gate, which the paper's GRU does not have.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gfrnn import parameters
from gfrnn.equations import STACKED, UNITS

NAMES = {"tanh": "RNN", "gru": "GRU", "lstm": "LSTM"}


def swap_z(unit: str, rows: Tensor, H: int) -> Tensor:
    """Negate the rows of the gate z, if there is one: only the GRU has."""
    gates = UNITS[unit].gates
    return torch.cat([-block if gate == "z" else block for gate, block in zip(gates, rows.split(H), strict=True)])


def inner_rows(layer: Any) -> slice:
    """The rows of bias_hh that torch keeps inside the reset gate: the candidate's, of a unit that has r."""
    unit, H = UNITS[layer.unit], layer.hidden_size
    place = unit.place(unit.candidate)
    return slice(place * H, (place + 1) * H) if "r" in unit.gates else slice(0)


def shapes(layer: Any) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the torch layer that a stacked layer equals."""
    found = {}
    for j in range(layer.num_layers):
        for name, shape in parameters.shapes(layer.spec, layer.bias, j).items():
            for theirs in ("bias_ih", "bias_hh") if name == "bias" else (name,):
                found[f"{theirs}_l{j}"] = shape
    return found


def why_not(layer: Any, theirs: Mapping[str, Tensor]) -> str:
    """Why the layer cannot be what torch's parameters make; empty: it can."""
    if layer.wiring != STACKED.name:
        return f"it is wiring={STACKED.name!r}, this layer is {layer.wiring!r}"
    expected = shapes(layer)
    for name in (*expected, *theirs):
        wanted, found = expected.get(name), tuple(theirs[name].shape) if name in theirs else None
        if wanted != found:
            return f"{name} is {found or 'missing'} there and {wanted or 'missing'} here"
    for j in range(layer.num_layers):
        if layer.bias and inner_bias(layer, theirs, j).any():
            return (
                f"bias_hh_l{j}[{inner_rows(layer).start}:] of torch.nn.GRU is inside its reset gate and not zero, the "
                "paper's GRU has no bias there: set it to zero in the GRU and train on, or let "
                "from_torch(module, inner_bias='drop') do so"
            )
    return ""


def inner_bias(layer: Any, theirs: Mapping[str, Tensor], j: int) -> Tensor:
    """The bias inside the reset gate of torch's GRU; its other layers have none."""
    return theirs[f"bias_hh_l{j}"][inner_rows(layer)]


def translated(layer: Any, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """torch's parameters as a stacked layer's, without the bias inside a GRU's reset gate."""
    ours, H = {}, layer.hidden_size
    for j in range(layer.num_layers):
        for kind in ("weight_ih", "weight_hh"):
            ours[f"{kind}_l{j}"] = swap_z(layer.unit, theirs[f"{kind}_l{j}"], H)
        if layer.bias:
            outer = theirs[f"bias_hh_l{j}"].clone()
            outer[inner_rows(layer)] = 0
            ours[f"bias_l{j}"] = swap_z(layer.unit, theirs[f"bias_ih_l{j}"] + outer, H)
    return ours


def adopt(layer: Any, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
    """Before a layer loads: parameters of its torch.nn twin are made its own, or it is said why they cannot be.

    They are known by torch's two biases; without any, names and shapes are a stacked layer's own.
    """
    theirs = {name.removeprefix(prefix): tensor for name, tensor in state_dict.items() if name.startswith(prefix)}
    if not any(name.startswith(("bias_ih_l", "bias_hh_l")) for name in theirs):
        return
    reason = why_not(layer, theirs)
    if reason:
        error_messages: list[str] = arguments[-1]
        error_messages.append(
            f"these are parameters of a torch.nn.{NAMES.get(layer.unit, 'LSTM')} or its like, which "
            f"gfrnn.convert.from_torch makes a layer of; they cannot be loaded into this one: {reason}."
        )
        return
    for name in theirs:
        del state_dict[prefix + name]
    state_dict.update({prefix + name: tensor for name, tensor in translated(layer, theirs).items()})
