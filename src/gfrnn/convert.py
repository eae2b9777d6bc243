"""To and from torch.nn.RNN, GRU and LSTM; foreign.py says what differs."""

from typing import Any, overload

import torch
from torch import nn

from gfrnn import foreign
from gfrnn.equations import STACKED, UNITS, WIRINGS, own_layer
from gfrnn.foreign import swap_z
from gfrnn.layers import GFGRU, GFLSTM, GFRNN, GatedFeedback

PAIRS: dict[Any, type[GatedFeedback]] = {nn.RNN: GFRNN, nn.GRU: GFGRU, nn.LSTM: GFLSTM}


@overload
def from_torch(module: nn.LSTM, inner_bias: str = ...) -> GFLSTM: ...
@overload
def from_torch(module: nn.GRU, inner_bias: str = ...) -> GFGRU: ...
@overload
def from_torch(module: nn.RNN, inner_bias: str = ...) -> GFRNN: ...
@overload
def from_torch(module: nn.RNNBase, inner_bias: str = ...) -> GatedFeedback: ...
def from_torch(module: nn.RNNBase, inner_bias: str = "refuse") -> GatedFeedback:
    """A stacked layer whose outputs equal those of a torch.nn.RNN, GRU or LSTM.

    A torch.nn.GRU has a bias inside its reset gate, bias_hh_l{j}[2H:], which the paper's GRU has not: where it is not
    zero, the GRU is refused, or with inner_bias="drop" converted without it. The outputs then equal those of the GRU
    with that bias set to zero, and differ from its own: train on.

    >>> theirs = nn.LSTM(5, 7, num_layers=2)
    >>> ours, x = from_torch(theirs), torch.randn(3, 1, 5)
    >>> torch.allclose(ours(x)[0], theirs(x)[0], atol=1e-6)
    True
    """
    ours = next((ours for theirs, ours in PAIRS.items() if isinstance(module, theirs)), None)
    if ours is None:
        raise TypeError(f"from_torch takes a torch.nn.RNN, GRU or LSTM, got {type(module).__name__}")
    if module.bidirectional:
        raise ValueError("from_torch: bidirectional=True has no counterpart here")
    if module.proj_size:
        raise ValueError(f"from_torch: proj_size={module.proj_size} has no counterpart here")
    if module.mode == "RNN_RELU":
        raise ValueError("from_torch: nonlinearity='relu' has no counterpart here, the unit is tanh")
    if inner_bias not in ("refuse", "drop"):
        raise ValueError(f"inner_bias must be 'refuse' or 'drop', got {inner_bias!r}")
    weight = next(module.parameters())
    layer = ours(
        module.input_size,
        module.hidden_size,
        module.num_layers,
        module.bias,
        module.batch_first,
        module.dropout if module.num_layers > 1 else 0.0,
        device="meta",
        dtype=weight.dtype,
        wiring=STACKED.name,
    ).to_empty(device=weight.device)
    theirs = module.state_dict()
    reason = foreign.why_not(layer, theirs)
    if reason and inner_bias == "refuse":
        raise ValueError(f"from_torch: {reason}")
    layer.load_state_dict(foreign.translated(layer, theirs))
    return layer.train(module.training)


def to_torch(layer: GatedFeedback) -> nn.RNNBase:
    """The torch.nn.RNN, GRU or LSTM whose outputs equal those of a stacked layer.

    >>> type(to_torch(GFGRU(5, 7, num_layers=2, wiring="stacked"))).__name__
    'GRU'
    """
    theirs = next((theirs for theirs, ours in PAIRS.items() if isinstance(layer, ours)), None)
    if theirs is None:
        raise TypeError(f"to_torch takes a GFRNN, GFGRU or GFLSTM, got {type(layer).__name__}")
    deep = layer.num_layers > 1
    # With one layer, feedback is what a stacked layer does, the skip goes nowhere and "all" is "last".
    wiring = WIRINGS[layer.wiring]
    if wiring.gates is not None or (wiring.hears is not own_layer and deep):
        raise ValueError(f"to_torch: torch has no wiring={layer.wiring!r}, only 'stacked'")
    if layer.input_skip and deep:
        raise ValueError("to_torch: torch has no input_skip=True")
    if layer.normalise:
        raise ValueError("to_torch: torch has no normalise=True")
    if layer.output == "all" and deep:
        raise ValueError("to_torch: torch has no output='all'")
    module: nn.RNNBase = theirs(
        layer.input_size,
        layer.hidden_size,
        num_layers=layer.num_layers,
        bias=layer.bias,
        batch_first=layer.batch_first,
        dropout=layer.dropout if deep else 0.0,
        device=layer.weight_ih_l0.device,
        dtype=layer.weight_ih_l0.dtype,
    )
    H = layer.hidden_size
    with torch.no_grad():
        for j, w in enumerate(layer.weights()):
            U = torch.cat([gate.U for gate in UNITS[layer.unit].rows(w)])
            getattr(module, f"weight_ih_l{j}").copy_(swap_z(layer.unit, w.W, H))
            getattr(module, f"weight_hh_l{j}").copy_(swap_z(layer.unit, U, H))
            if w.b is not None:
                getattr(module, f"bias_ih_l{j}").copy_(swap_z(layer.unit, w.b, H))
                getattr(module, f"bias_hh_l{j}").zero_()
    return module.train(layer.training)
