"""The paper: one timestep of a gated-feedback recurrent network (Chung, Gulcehre, Cho, Bengio, 2015).

Nothing here is meant to be fast; everything that is fast is tested against it. torch only.

B batch   L layers   H units per layer   I width of what feeds layer j (x_t; h_t^{j-1}; or both with skips)
G gates of the unit: tanh 1, GRU 3 (r, z, candidate), LSTM 4 (i, f, candidate, o)

paper            here             shape
x_t              below.x          (B, I_0)      or (B,) indices, standing for one-hot vectors
h_t^{j-1}        below.h          (B, H)        "below" is all that feeds layer j from time t
h_{t-1}^i        h_prev[i]        (B, H)
h*_{t-1}         h_star           (B, L*H)      concatenation of all h_{t-1}^i
c_{t-1}^j        c_prev           (B, H)
g^{i->j}         g[:, i]          (B, L)        for the current j: one scalar per source layer
W^{j-1->j}       W_...            (H, I)        U^{i->j}     U_... = [U^{1->j} ... U^{L->j}]   (H, L*H)
w_g^{i->j}       w_g[i]           (L, I)        u_g^{i->j}   u_g[i]                            (L, L*H)

Equation labels (eq:...) are those of the paper's source. The paper writes no biases; there is one per gate.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, sigmoid, tanh


@dataclass(frozen=True)
class Spec:
    """What a network is, apart from its numbers."""

    unit: str  # "tanh", "gru" or "lstm"
    wiring: str  # "stacked", "feedback" or "gated"
    input_size: int
    hidden_size: int
    num_layers: int
    gates_see: str = "all"  # unit-wise gates read "all" layers' h_{t-1} (as trained) or their "own" (as printed)
    input_skip: bool = False  # x_t feeds every layer


class State(NamedTuple):
    """Hidden states h (L, B, H) of all layers, and the memory cells c (L, B, H) of an LSTM."""

    h: Tensor
    c: Tensor | None = None

    def map(self, change: Callable[[Tensor], Tensor]) -> "State":
        return State(change(self.h), None if self.c is None else change(self.c))


class Weights(NamedTuple):
    """One layer's parameters; the gates' rows are stacked in the order of G above."""

    W: Tensor  # (G*H, I)
    U: Tensor  # (G*H, L*H), (G*H, H) when stacked, ((G-1)*H, H) when unit-wise gates see only their own layer
    U_candidate: Tensor | None = None  # (H, L*H), when unit-wise gates see only their own layer
    b: Tensor | None = None  # (G*H,)
    w_g: Tensor | None = None  # (L, I)
    u_g: Tensor | None = None  # (L, L*H)
    b_g: Tensor | None = None  # (L,)


class Below(NamedTuple):
    """What layer j receives from time t: x_t, h_t^{j-1}, or, with skip connections, both side by side."""

    x: Tensor | None
    h: Tensor | None


def times(W: Tensor, below: Below) -> Tensor:
    """W h_t^{j-1}: (R, I) and a Below of width I -> (B, R)."""

    def input_times(W: Tensor, x: Tensor) -> Tensor:
        # A one-hot x picks a column of W.
        return x @ W.T if x.is_floating_point() else torch.nn.functional.embedding(x, W.T)

    if below.h is None:
        assert below.x is not None
        return input_times(W, below.x)
    if below.x is None:
        return below.h @ W.T
    H = below.h.shape[-1]
    return input_times(W[:, :-H], below.x) + below.h @ W[:, -H:].T


def global_reset_gates(below: Below, h_star: Tensor, w_g: Tensor, u_g: Tensor, b_g: Tensor | float) -> Tensor:
    """g^{i->j} = sigma(w_g^{i->j} h_t^{j-1} + u_g^{i->j} h*_{t-1}), for all sources i at once: (B, L)."""
    return sigmoid(times(w_g, below) + h_star @ u_g.T + b_g)


def gated_sum(g: Tensor, U: Tensor, h_prev: Sequence[Tensor]) -> Tensor:
    """sum_i g^{i->j} U^{i->j} h_{t-1}^i: gates (B, n), blocks U (H, n*H), n sources (B, H) -> (B, H)."""
    blocks = U.chunk(len(h_prev), dim=1)
    terms = [g[:, i : i + 1] * (h_prev[i] @ blocks[i].T) for i in range(len(h_prev))]
    return torch.stack(terms).sum(0)


# A wiring is a name and two answers: which layers' h_{t-1} layer j listens to, and through which gates.
# Nothing else asks "is this gated?".
Answers = tuple[range, Tensor]


def stacked(j: int, h_prev: Sequence[Tensor], below: Below, w: Weights) -> Answers:
    return range(j, j + 1), torch.ones_like(h_prev[j][:, :1])


def feedback(j: int, h_prev: Sequence[Tensor], below: Below, w: Weights) -> Answers:
    return range(len(h_prev)), torch.ones_like(h_prev[j][:, :1]).expand(-1, len(h_prev))


def gated(j: int, h_prev: Sequence[Tensor], below: Below, w: Weights) -> Answers:
    assert w.w_g is not None and w.u_g is not None
    b_g = 0.0 if w.b_g is None else w.b_g
    return range(len(h_prev)), global_reset_gates(below, torch.cat(list(h_prev), dim=1), w.w_g, w.u_g, b_g)


class Sources(NamedTuple):
    """The past, as layer j receives it."""

    h_prev: Sequence[Tensor]  # the h_{t-1}^i of the layers it listens to
    g: Tensor  # their global reset gates, (B, number of sources)
    seen: Tensor  # what the unit-wise gates read: (B, S)


def tanh_unit(w: Weights, below: Below, past: Sources, h_prev: Tensor, c_prev: None) -> tuple[Tensor, None]:
    (b,) = biases(w, 1)
    return tanh(times(w.W, below) + gated_sum(past.g, w.U, past.h_prev) + b), None  # eq:rnn_hidden_trad, gated


def gru_unit(w: Weights, below: Below, past: Sources, h_prev: Tensor, c_prev: None) -> tuple[Tensor, None]:
    W_r, W_z, W = w.W.chunk(3)
    U_r, U_z, U = recurrent_blocks(w, 3, candidate=2)
    b_r, b_z, b = biases(w, 3)
    z = sigmoid(times(W_z, below) + past.seen @ U_z.T + b_z)  # eq:gru_update_gate
    r = sigmoid(times(W_r, below) + past.seen @ U_r.T + b_r)  # eq:gru_memory_reset
    h_tilde = tanh(times(W, below) + r * gated_sum(past.g, U, past.h_prev) + b)  # eq:gru_new_act, gated
    return (1 - z) * h_prev + z * h_tilde, None  # eq:gru_memory_up (torch.nn.GRU swaps z)


def lstm_unit(w: Weights, below: Below, past: Sources, h_prev: Tensor, c_prev: Tensor) -> tuple[Tensor, Tensor]:
    W_i, W_f, W_c, W_o = w.W.chunk(4)
    U_i, U_f, U_c, U_o = recurrent_blocks(w, 4, candidate=2)
    b_i, b_f, b_c, b_o = biases(w, 4)
    c_tilde = tanh(times(W_c, below) + gated_sum(past.g, U_c, past.h_prev) + b_c)  # eq:lstm_new_cell, gated
    i = sigmoid(times(W_i, below) + past.seen @ U_i.T + b_i)  # eq:lstm_input
    f = sigmoid(times(W_f, below) + past.seen @ U_f.T + b_f)  # eq:lstm_forget
    c = f * c_prev + i * c_tilde  # eq:lstm_cell
    o = sigmoid(times(W_o, below) + past.seen @ U_o.T + b_o)  # eq:lstm_output
    return o * tanh(c), c


def recurrent_blocks(w: Weights, count: int, candidate: int) -> list[Tensor]:
    """The U of every gate in the order of W's rows; the candidate's may be kept apart."""
    if w.U_candidate is None:
        return list(w.U.chunk(count))
    blocks = list(w.U.chunk(count - 1))
    return [*blocks[:candidate], w.U_candidate, *blocks[candidate:]]


def biases(w: Weights, count: int) -> Sequence[Tensor | float]:
    return [0.0] * count if w.b is None else w.b.chunk(count)


UNITS: dict[str, Callable[..., tuple[Tensor, Tensor | None]]] = {
    "tanh": tanh_unit,
    "gru": gru_unit,
    "lstm": lstm_unit,
}
GATES = {"tanh": 1, "gru": 3, "lstm": 4}
WIRINGS: dict[str, Callable[..., Answers]] = {"stacked": stacked, "feedback": feedback, "gated": gated}


def step(
    x_t: Tensor, state: State, weights: Sequence[Weights], spec: Spec, dropout_mask: Tensor | None = None
) -> tuple[State, Tensor]:
    """One timestep, from the bottom layer up: the new State and the global reset gates (B, L_to, L_from).

    `dropout_mask` (B, L-1, H), already scaled, multiplies h_t^{j-1} on its way up only.
    """
    h_prev = state.h.unbind(0)
    c_prev = [None] * len(h_prev) if state.c is None else state.c.unbind(0)
    below, h, c, g_rows = Below(x_t, None), [], [], []
    for j, w in enumerate(weights):
        sources, g = WIRINGS[spec.wiring](j, h_prev, below, w)
        h_sources = [h_prev[i] for i in sources]
        seen = torch.cat(h_sources, dim=1) if spec.gates_see == "all" else h_prev[j]
        h_j, c_j = UNITS[spec.unit](w, below, Sources(h_sources, g, seen), h_prev[j], c_prev[j])
        h.append(h_j)
        c.append(c_j)
        g_rows.append(torch.nn.functional.pad(g, (sources.start, len(h_prev) - sources.stop)))
        up = h_j if dropout_mask is None or j == len(h_prev) - 1 else h_j * dropout_mask[:, j]
        below = Below(x_t if spec.input_skip else None, up)
    new_c = None if state.c is None else torch.stack(c)  # type: ignore[arg-type]
    return State(torch.stack(h), new_c), torch.stack(g_rows, dim=1)
