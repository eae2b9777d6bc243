"""To and from torch.nn.RNN, GRU and LSTM.

torch's layers are the stacked wiring with two biases. Its GRU swaps z (sigma(-a) = 1 - sigma(a): the rows of z change
sign) and has a second bias inside the reset gate, which the paper's GRU does not have.
"""

from typing import Any

import torch
from torch import Tensor, nn

from gfrnn.equations import GATES
from gfrnn.layers import GFGRU, GFLSTM, GFRNN, GatedFeedback

PAIRS: dict[Any, type[GatedFeedback]] = {nn.RNN: GFRNN, nn.GRU: GFGRU, nn.LSTM: GFLSTM}


def from_torch(module: nn.RNNBase) -> GatedFeedback:
    """A stacked layer whose outputs equal those of a torch.nn.RNN, GRU or LSTM.

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
    weight = next(module.parameters())
    layer = ours(
        module.input_size,
        module.hidden_size,
        module.num_layers,
        module.bias,
        module.batch_first,
        module.dropout if module.num_layers > 1 else 0.0,
        device=weight.device,
        dtype=weight.dtype,
        wiring="stacked",
    )
    H = module.hidden_size
    with torch.no_grad():
        for j in range(module.num_layers):
            for kind in ("weight_ih", "weight_hh"):
                getattr(layer, f"{kind}_l{j}").copy_(_swap_z(layer.unit, getattr(module, f"{kind}_l{j}"), H))
            if module.bias:
                inner = getattr(module, f"bias_hh_l{j}")
                if layer.unit == "gru" and inner[2 * H :].any():
                    raise ValueError(
                        f"from_torch: bias_hh_l{j}[{2 * H}:] of torch.nn.GRU is inside its reset gate and not zero; "
                        "the paper's GRU has no bias there"
                    )
                both = getattr(module, f"bias_ih_l{j}") + inner
                getattr(layer, f"bias_l{j}").copy_(_swap_z(layer.unit, both, H))
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
    if layer.wiring == "gated" or (layer.wiring == "feedback" and deep):
        raise ValueError(f"to_torch: torch has no wiring={layer.wiring!r}, only 'stacked'")
    if layer.input_skip and deep:
        raise ValueError("to_torch: torch has no input_skip=True")
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
            U = w.U if w.U_candidate is None else _with_candidate(layer.unit, w.U, w.U_candidate, H)
            getattr(module, f"weight_ih_l{j}").copy_(_swap_z(layer.unit, w.W, H))
            getattr(module, f"weight_hh_l{j}").copy_(_swap_z(layer.unit, U, H))
            if w.b is not None:
                getattr(module, f"bias_ih_l{j}").copy_(_swap_z(layer.unit, w.b, H))
                getattr(module, f"bias_hh_l{j}").zero_()
    return module.train(layer.training)


def _swap_z(unit: str, rows: Tensor, H: int) -> Tensor:
    """Negate the z rows of a GRU's (r, z, candidate)."""
    if unit != "gru":
        return rows
    r, z, candidate = rows.split(H)
    return torch.cat([r, -z, candidate])


def _with_candidate(unit: str, U: Tensor, U_candidate: Tensor, H: int) -> Tensor:
    """The rows of all gates in one matrix; the candidate is third in both the GRU and the LSTM."""
    blocks = list(U.split(H))
    assert len(blocks) == GATES[unit] - 1
    return torch.cat([*blocks[:2], U_candidate, *blocks[2:]])
