"""The units of manual.py, in the letters of README.md: as a function, in place, and backwards.

`plain(fed, q, units, h_prev, c_prev, settle)` -> h_t, c_t: from what is fed to the candidate, the gated sum q, and the
activations of the unit-wise gates; `settle` is what is done to the candidate's pre-activations. `forward` does the
same to the views of a Step, which hold the pre-activation fed + q of the candidate (fed alone, where q is kept) and the
activations of the gates; its `settle` knows the candidate's place.

The backward is in two parts. `slopes` is for all layers of a timestep at once: what does not need the gradient,
written where the deltas belong. `deltas` multiplies it with the gradients that reach one layer, and has the candidate's
go back `through` what settled its pre-activations.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, tanh

from gfrnn.equations import BOUNDED_LSTM, GRU, LSTM, TANH

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input  # of d and a: d a (1 - a)
tanh_backward = torch.ops.aten.tanh_backward.grad_input  # of d and a: d (1 - a^2)


Settle = Callable[[Tensor], Tensor]


class Step(NamedTuple):
    """Views of one timestep, (B, H) of a layer or (B, L, H) of all: the activations and states, or the deltas."""

    candidate: Any
    units: tuple[Any, ...]  # the unit-wise gates
    q: Any = None  # of a unit that keeps it
    h: Any = None
    c: Any = None  # of a unit that has a cell
    h_prev: Any = None
    c_prev: Any = None


class Back(NamedTuple):
    """Gradients (B, H) that reach a layer, and where what it sends to t-1 without a matrix is added."""

    h: Any
    c: Any  # carried from t+1; leaves as that of c_{t-1}
    h_prev: Any
    slope: Any  # of c_t in h_t, of a unit that has a cell


class Maths(NamedTuple):
    plain: Callable[[Tensor, Tensor, Sequence[Tensor], Tensor, Any, Settle], tuple[Tensor, Tensor | None]]
    forward: Callable[[Step, Callable[[], None]], None]
    slopes: Callable[[Step, Step, Tensor], None]  # the last is for that of c_t in h_t, of a unit that has a cell
    deltas: Callable[[Step, Step, Back, Settle], None]
    keeps_q: bool = False  # whether the gated sum is kept apart, and has a gradient of its own


def tanh_plain(
    fed: Tensor, q: Tensor, units: Sequence[Tensor], h_prev: Tensor, c_prev: None, settle: Settle
) -> tuple[Tensor, None]:
    return tanh(settle(fed + q)), None


def tanh_forward(s: Step, settle: Callable[[], None]) -> None:
    settle()
    s.h.copy_(s.candidate.tanh_())


def tanh_slopes(s: Step, d: Step, of_c: Tensor) -> None:
    tanh_backward(torch.ones_like(s.candidate), s.candidate, grad_input=d.candidate)


def tanh_deltas(s: Step, d: Step, back: Back, through: Settle) -> None:
    through(d.candidate.mul_(back.h))


def gru_plain(
    fed: Tensor, q: Tensor, units: Sequence[Tensor], h_prev: Tensor, c_prev: None, settle: Settle
) -> tuple[Tensor, None]:
    r, z = units
    return (1 - z) * h_prev + z * tanh(settle(fed + r * q)), None


def gru_forward(s: Step, settle: Callable[[], None]) -> None:
    r, z = s.units
    s.candidate.addcmul_(r, s.q)
    settle()
    torch.lerp(s.h_prev, s.candidate.tanh_(), z, out=s.h)


def gru_slopes(s: Step, d: Step, of_c: Tensor) -> None:
    (r, z), (d_r, d_z) = s.units, d.units
    tanh_backward(z, s.candidate, grad_input=d.candidate)
    sigmoid_backward(s.q, r, grad_input=d_r)
    sigmoid_backward(s.candidate - s.h_prev, z, grad_input=d_z)


def gru_deltas(s: Step, d: Step, back: Back, through: Settle) -> None:
    (r, z), (d_r, d_z) = s.units, d.units
    of_sum = through(d.candidate.mul_(back.h))  # of fed + r q
    d_r.mul_(of_sum)
    d_z.mul_(back.h)
    torch.mul(of_sum, r, out=d.q)
    back.h_prev.add_(back.h).addcmul_(back.h, z, value=-1)


def lstm_plain(
    fed: Tensor, q: Tensor, units: Sequence[Tensor], h_prev: Tensor, c_prev: Tensor, settle: Settle
) -> tuple[Tensor, Tensor]:
    i, f, o = units
    c = f * c_prev + i * tanh(settle(fed + q))
    return o * tanh(c), c


def lstm_forward(s: Step, settle: Callable[[], None]) -> None:
    i, f, o = s.units
    settle()
    c = torch.mul(f, s.c_prev, out=s.c).addcmul_(i, s.candidate.tanh_())
    torch.tanh(c, out=s.h).mul_(o)


def lstm_slopes(s: Step, d: Step, of_c: Tensor) -> None:
    (i, f, o), (d_i, d_f, d_o) = s.units, d.units
    tanh_c = torch.tanh(s.c, out=of_c)
    tanh_backward(i, s.candidate, grad_input=d.candidate)
    sigmoid_backward(s.candidate, i, grad_input=d_i)
    sigmoid_backward(s.c_prev, f, grad_input=d_f)
    sigmoid_backward(tanh_c, o, grad_input=d_o)
    tanh_backward(o, tanh_c, grad_input=of_c)


def lstm_deltas(s: Step, d: Step, back: Back, through: Settle) -> None:
    (_, f, _), (d_i, d_f, d_o) = s.units, d.units
    d_c = back.c.addcmul_(back.h, back.slope)
    through(d.candidate.mul_(d_c))
    d_i.mul_(d_c)
    d_f.mul_(d_c)
    d_o.mul_(back.h)
    d_c.mul_(f)


def bounded_lstm_plain(
    fed: Tensor, q: Tensor, units: Sequence[Tensor], h_prev: Tensor, c_prev: Tensor, settle: Settle
) -> tuple[Tensor, Tensor]:
    f, o = units
    c = f * c_prev + (1 - f) * tanh(settle(fed + q))
    return o * tanh(c), c


def bounded_lstm_forward(s: Step, settle: Callable[[], None]) -> None:
    f, o = s.units
    settle()
    c = torch.lerp(s.candidate.tanh_(), s.c_prev, f, out=s.c)
    torch.tanh(c, out=s.h).mul_(o)


def bounded_lstm_slopes(s: Step, d: Step, of_c: Tensor) -> None:
    (f, o), (d_f, d_o) = s.units, d.units
    tanh_c = torch.tanh(s.c, out=of_c)
    tanh_backward(1 - f, s.candidate, grad_input=d.candidate)
    sigmoid_backward(s.c_prev - s.candidate, f, grad_input=d_f)
    sigmoid_backward(tanh_c, o, grad_input=d_o)
    tanh_backward(o, tanh_c, grad_input=of_c)


def bounded_lstm_deltas(s: Step, d: Step, back: Back, through: Settle) -> None:
    (f, _), (d_f, d_o) = s.units, d.units
    d_c = back.c.addcmul_(back.h, back.slope)
    through(d.candidate.mul_(d_c))
    d_f.mul_(d_c)
    d_o.mul_(back.h)
    d_c.mul_(f)


MATHS = {
    TANH.name: Maths(tanh_plain, tanh_forward, tanh_slopes, tanh_deltas),
    GRU.name: Maths(gru_plain, gru_forward, gru_slopes, gru_deltas, keeps_q=True),
    LSTM.name: Maths(lstm_plain, lstm_forward, lstm_slopes, lstm_deltas),
    BOUNDED_LSTM.name: Maths(bounded_lstm_plain, bounded_lstm_forward, bounded_lstm_slopes, bounded_lstm_deltas),
}
