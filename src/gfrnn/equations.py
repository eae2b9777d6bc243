"""The paper: one timestep of a gated-feedback recurrent network (Chung, Gulcehre, Cho, Bengio, 2015).
Nothing here is meant to be fast; everything that is fast is tested against it. torch only.

B batch   L layers   H units per layer   I width of what feeds layer j (x_t; h_t^{j-1}; or both with skips)
G gates of the unit, in the order of its record (see UNITS); one of them is the candidate for the new state

paper            here             shape
x_t              below.x          (B, I_0)      or (B,) indices, standing for one-hot vectors
h_t^{j-1}        below.h          (B, H)        "below" is all that feeds layer j from time t
h_{t-1}^i        h_prev[i]        (B, H)
h*_{t-1}         h_star           (B, L*H)      concatenation of all h_{t-1}^i
c_{t-1}^j        c_prev           (B, H)
g^{i->j}         g[:, i]          (B, L)        for the current j: one scalar per source layer
W^{j-1->j}       W_...            (H, I)        U^{i->j}     U_... = [U^{1->j} ... U^{L->j}]   (H, L*H)
w_g^{i->j}       w_g[i]           (L, I)        u_g^{i->j}   u_g[i]                            (L, L*H)

Where layer j hears only n of the L layers (one, when stacked), g, w_g and u_g have n rows, and U has n*H columns.

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

    unit: str  # one of UNITS
    wiring: str  # one of WIRINGS
    input_size: int
    hidden_size: int
    num_layers: int
    gates_see: str = "all"  # unit-wise gates read "all" layers' h_{t-1} (as trained) or their "own" (as printed)
    input_skip: bool = False  # x_t feeds every layer
    normalise: bool = False  # every gate's pre-activations are brought to one size (not of the paper): see `settled`

    @property
    def apart(self) -> bool:
        """Whether the candidate hears layers that the unit-wise gates do not, so that its U is kept apart."""
        others = WIRINGS[self.wiring].hears is not own_layer
        return self.gates_see == "own" and others and len(UNITS[self.unit].gates) > 1


class State(NamedTuple):
    """Hidden states h (L, B, H) of all layers, and the memory cells c (L, B, H) of a unit that has them."""

    h: Tensor
    c: Tensor | None = None

    def map(self, change: Callable[[Tensor], Tensor]) -> "State":
        return State(change(self.h), None if self.c is None else change(self.c))


class Weights(NamedTuple):
    """One layer's parameters; the gates' rows are stacked in the order of the unit's gates."""

    W: Tensor  # (G*H, I)
    U: Tensor  # (G*H, L*H), or ((G-1)*H, H) without the candidate's when that is `apart`
    U_candidate: Tensor | None = None  # (H, L*H), when `apart`
    b: Tensor | None = None  # (G*H,)
    w_g: Tensor | None = None  # (L, I)
    u_g: Tensor | None = None  # (L, L*H)
    b_g: Tensor | None = None  # (L,)
    gain: Tensor | None = None  # (G*H,), when normalised


def untouched(tensor: Tensor) -> Tensor:
    return tensor


class Products(NamedTuple):
    """How matrices are multiplied: what is done to a factor, and, backwards, to the gradient of a result.

    As it stands, nothing; products.py has the other one.
    """

    factor: Callable[[Tensor], Tensor] = untouched
    result: Callable[[Tensor], Tensor] = untouched

    def __call__(self, W: Tensor, x: Tensor) -> Tensor:
        """W x: (R, K) and (B, K) -> (B, R). Indices (B,) are one-hot vectors: each picks a column of W."""
        W = self.factor(W)
        x = self.factor(x) @ W.T if x.is_floating_point() else torch.nn.functional.embedding(x, W.T)
        return self.result(x)

    def bias(self, b: Tensor, rows: int) -> Tensor:
        """(R,) -> (B, R): a weight of a constant 1, which needs no product forwards."""
        return b if self.result is untouched else self.result(b.expand(rows, -1))


EXACT = Products()


class Below(NamedTuple):
    """What layer j receives from time t: x_t, h_t^{j-1}, or, with skip connections, both side by side."""

    x: Tensor | None
    h: Tensor | None
    products: Products = EXACT


def times(W: Tensor, below: Below) -> Tensor:
    """W h_t^{j-1}: (R, I) and a Below of width I -> (B, R)."""
    if below.h is None:
        assert below.x is not None
        return below.products(W, below.x)
    if below.x is None:
        return below.products(W, below.h)
    H = below.h.shape[-1]
    return below.products(W[:, :-H], below.x) + below.products(W[:, -H:], below.h)


def global_reset_gates(below: Below, h_star: Tensor, w_g: Tensor, u_g: Tensor, b_g: Tensor | float) -> Tensor:
    """g^{i->j} = sigma(w_g^{i->j} h_t^{j-1} + u_g^{i->j} h*_{t-1}), for all sources i at once: (B, L)."""
    return sigmoid(times(w_g, below) + below.products(u_g, h_star) + b_g)


def gated_sum(g: Tensor, U: Tensor, h_prev: Sequence[Tensor], products: Products = EXACT) -> Tensor:
    """sum_i g^{i->j} U^{i->j} h_{t-1}^i: gates (B, n), blocks U (H, n*H), n sources (B, H) -> (B, H)."""
    blocks = U.chunk(len(h_prev), dim=1)
    # g^{i->j} is a number and may stand on either side of U^{i->j}: it is the state that is let through.
    terms = [products(blocks[i], g[:, i : i + 1] * h_prev[i]) for i in range(len(h_prev))]
    return torch.stack(terms).sum(0)


@dataclass(frozen=True)
class Wiring:
    """A name and two answers: which layers' h_{t-1} layer j of L listens to, and through which gates.

    Without `gates` every source arrives as it is. With them layer j learns w_g, u_g and b_g, one row per source.
    """

    name: str
    hears: Callable[[int, int], range]  # (j, L) -> the sources of layer j, no layer between them left out
    gates: Callable[[Below, Tensor, Weights], Tensor] | None = None  # (below, h_star, w) -> g (B, sources)


def own_layer(j: int, L: int) -> range:
    return range(j, j + 1)


def all_layers(j: int, L: int) -> range:
    return range(L)


def learnt_gates(below: Below, h_star: Tensor, w: Weights) -> Tensor:
    assert w.w_g is not None and w.u_g is not None
    return global_reset_gates(below, h_star, w.w_g, w.u_g, 0.0 if w.b_g is None else w.b_g)


GATED = Wiring("gated", all_layers, learnt_gates)
FEEDBACK = Wiring("feedback", all_layers)
STACKED = Wiring("stacked", own_layer)
WIRINGS = {wiring.name: wiring for wiring in (GATED, FEEDBACK, STACKED)}


class Past(NamedTuple):  # as layer j receives it
    h_prev: Sequence[Tensor]  # the h_{t-1}^i of the layers it listens to
    g: Tensor  # their global reset gates, (B, number of sources)
    seen: Tensor  # what the unit-wise gates read: (B, S)
    products: Products = EXACT

    def read(self, U: Tensor) -> Tensor:
        """U h*_{t-1}, as a unit-wise gate hears it: (H, S) -> (B, H)."""
        return self.products(U, self.seen)

    def gated(self, U: Tensor) -> Tensor:
        """The gated sum, as the candidate hears it: (H, n*H) -> (B, H)."""
        return gated_sum(self.g, U, self.h_prev, self.products)


EPSILON = 1e-5  # of the mean square that a normalisation divides by


class Scale(NamedTuple):
    gain: Tensor  # (H,)
    b: Tensor | float  # (H,)


class Rows(NamedTuple):
    """What one gate of a unit learns."""

    W: Tensor  # (H, I)
    U: Tensor  # (H, S)
    b: Tensor | float | Scale  # (H,); the last where pre-activations are normalised


def settled(a: Tensor, b: Tensor | float | Scale) -> Tensor:
    """A gate's pre-activations (B, H): a + b; normalised, gain * a / rms(a) + b, where rms(a) is of each row."""
    if isinstance(b, Scale):
        return a * torch.rsqrt(a.square().mean(-1, keepdim=True) + EPSILON) * b.gain + b.b
    return a + b


@dataclass(frozen=True)
class Unit:
    """The maths inside a layer: what it makes of what it is fed and of the past."""

    name: str
    title: str  # as the paper writes it
    gates: tuple[str, ...]  # in the order of the rows of W, U and b
    candidate: str  # the one of them whose past goes through the global reset gates
    step: Callable[..., tuple[Tensor, Tensor | None]]  # (Rows of each gate, below, past, h_prev, c_prev) -> h_t, c_t
    has_cell: bool = False

    def place(self, gate: str) -> int:
        """Which block of H rows is this gate's."""
        return self.gates.index(gate)

    def rows(self, w: Weights) -> list[Rows]:
        """One layer's weights, gate by gate."""
        G = len(self.gates)
        U = list(w.U.chunk(G if w.U_candidate is None else G - 1))
        if w.U_candidate is not None:
            U.insert(self.place(self.candidate), w.U_candidate)
        b: Sequence[Tensor | float] = [0.0] * G if w.b is None else w.b.chunk(G)
        scaled = b if w.gain is None else [Scale(*pair) for pair in zip(w.gain.chunk(G), b, strict=True)]
        return [Rows(*gate) for gate in zip(w.W.chunk(G), U, scaled, strict=True)]


def tanh_unit(rows: list[Rows], below: Below, past: Past, h_prev: Tensor, c_prev: None) -> tuple[Tensor, None]:
    ((W, U, b),) = rows
    return tanh(settled(times(W, below) + past.gated(U), b)), None  # eq:rnn_hidden_trad, gated


def gru_unit(rows: list[Rows], below: Below, past: Past, h_prev: Tensor, c_prev: None) -> tuple[Tensor, None]:
    (W_r, U_r, b_r), (W_z, U_z, b_z), (W, U, b) = rows
    z = sigmoid(settled(times(W_z, below) + past.read(U_z), b_z))  # eq:gru_update_gate
    r = sigmoid(settled(times(W_r, below) + past.read(U_r), b_r))  # eq:gru_memory_reset
    h_tilde = tanh(settled(times(W, below) + r * past.gated(U), b))  # eq:gru_new_act, gated
    return (1 - z) * h_prev + z * h_tilde, None  # eq:gru_memory_up (torch.nn.GRU swaps z)


def lstm_unit(rows: list[Rows], below: Below, past: Past, h_prev: Tensor, c_prev: Tensor) -> tuple[Tensor, Tensor]:
    (W_i, U_i, b_i), (W_f, U_f, b_f), (W_c, U_c, b_c), (W_o, U_o, b_o) = rows
    c_tilde = tanh(settled(times(W_c, below) + past.gated(U_c), b_c))  # eq:lstm_new_cell, gated
    i = sigmoid(settled(times(W_i, below) + past.read(U_i), b_i))  # eq:lstm_input
    f = sigmoid(settled(times(W_f, below) + past.read(U_f), b_f))  # eq:lstm_forget
    c = f * c_prev + i * c_tilde  # eq:lstm_cell
    o = sigmoid(settled(times(W_o, below) + past.read(U_o), b_o))  # eq:lstm_output
    return o * tanh(c), c


def bounded_unit(rows: list[Rows], below: Below, past: Past, h_prev: Tensor, c_prev: Tensor) -> tuple[Tensor, Tensor]:
    (W_f, U_f, b_f), (W_c, U_c, b_c), (W_o, U_o, b_o) = rows  # not of the paper: i = 1 - f keeps c in (-1, 1)
    c_tilde = tanh(settled(times(W_c, below) + past.gated(U_c), b_c))
    f = sigmoid(settled(times(W_f, below) + past.read(U_f), b_f))
    c = f * c_prev + (1 - f) * c_tilde
    o = sigmoid(settled(times(W_o, below) + past.read(U_o), b_o))
    return o * tanh(c), c


TANH = Unit("tanh", "tanh", ("h",), "h", tanh_unit)
GRU = Unit("gru", "GRU", ("r", "z", "h"), "h", gru_unit)
LSTM = Unit("lstm", "LSTM", ("i", "f", "c", "o"), "c", lstm_unit, has_cell=True)
BOUNDED_LSTM = Unit("bounded-lstm", "bounded LSTM", ("f", "c", "o"), "c", bounded_unit, has_cell=True)
PAPER = (TANH, GRU, LSTM)
UNITS = {unit.name: unit for unit in (*PAPER, BOUNDED_LSTM)}


def step(
    x_t: Tensor,
    state: State,
    weights: Sequence[Weights],
    spec: Spec,
    dropout_mask: Tensor | None = None,
    products: Products = EXACT,
) -> tuple[State, Tensor]:
    """One timestep, from the bottom layer up: the new State and the global reset gates (B, L_to, L_from).

    `dropout_mask` (B, L-1, H), already scaled, multiplies h_t^{j-1} on its way up only.
    """
    unit, wiring, L = UNITS[spec.unit], WIRINGS[spec.wiring], len(weights)
    h_prev = state.h.unbind(0)
    c_prev = [None] * L if state.c is None else state.c.unbind(0)
    below, h, c, g_rows = Below(x_t, None, products), [], [], []
    for j, w in enumerate(weights):
        w = w if w.b_g is None else w._replace(b_g=products.bias(w.b_g, x_t.shape[0]))
        sources = wiring.hears(j, L)
        if wiring.gates is None:
            g = torch.ones_like(h_prev[j][:, :1]).expand(-1, len(sources))
        else:
            g = wiring.gates(below, torch.cat(h_prev, dim=1), w)
        h_sources = [h_prev[i] for i in sources]
        seen = torch.cat(h_sources, dim=1) if spec.gates_see == "all" else h_prev[j]
        rows = [r._replace(b=products.bias(r.b, x_t.shape[0])) if isinstance(r.b, Tensor) else r for r in unit.rows(w)]
        h_j, c_j = unit.step(rows, below, Past(h_sources, g, seen, products), h_prev[j], c_prev[j])
        h.append(h_j)
        c.append(c_j)
        g_rows.append(torch.nn.functional.pad(g, (sources.start, L - sources.stop)))
        up = h_j if dropout_mask is None or j == L - 1 else h_j * dropout_mask[:, j]
        below = Below(x_t if spec.input_skip else None, up, products)
    return State(torch.stack(h), None if state.c is None else torch.stack(c)), torch.stack(g_rows, dim=1)  # type: ignore[arg-type]
