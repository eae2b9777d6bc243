"""The weights as manual.py multiplies them, and back: layer by layer, and those of all layers together.

A layer's rows: [candidate H | unit-wise gates (G-1)*H | global reset gates n], n = L if the wiring has any, else 0;
C = G*H + n in all. Of all layers together the candidates come first, then the K = C - H gates of each layer.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gfrnn.equations import UNITS, WIRINGS, Scale, Spec, Unit, Weights, own_layer

WORTH_LAYING_DOWN = 32  # timesteps: fewer gain less than it costs


class Matrices(NamedTuple):
    """One layer's weights with their rows in the order of our columns; None where the layer has none."""

    x: Tensor | None  # (C, I)
    below: Tensor | None  # (C, H)
    bias: Tensor | None  # (C,); where pre-activations are normalised that of the global reset gates alone
    candidate: Tensor  # (H, S): its sources are scaled by the global reset gates
    units: Tensor  # ((G-1)*H + n, S): unit-wise gates, and global reset gates unless `apart`
    u_g: Tensor | None  # (n, L*H) when `apart`: the unit-wise gates hear their own layer only, these hear all
    scales: tuple[Scale, Scale] | None = None  # of the candidate (H,), of the unit-wise gates (G-1, H)

    def as_factors(self, factor: Callable[[Tensor], Tensor]) -> "Matrices":
        """As products read them (products.py); what is added or scales is no factor."""
        factors: dict[str, Any] = {
            name: factor(m) for name, m in self._asdict().items() if isinstance(m, Tensor) and name != "bias"
        }
        return self._replace(**factors)


class Hearing(NamedTuple):
    """Gates that hear the same of h*_{t-1}: one product."""

    gates: slice  # which of all layers' gates
    sources: slice  # which columns of h*_{t-1}
    U: Tensor  # (gates, sources)


class Together(NamedTuple):
    """All layers' weights: whatever hears the same in one matrix."""

    x: Tensor  # (columns that x_t reaches, I)
    fed: list[slice]  # those columns
    bias: Tensor  # (L*C,)
    hearing: list[Hearing]
    candidate: list[Tensor]  # per layer (H, H + S): [W_h | U], for the lowest U alone
    below: list[Tensor]  # per layer (K, H): what its gates hear of the layer below; empty for the lowest
    scales: list[tuple[Scale, Scale]]  # per layer, as Matrices has them; none where nothing is normalised

    def W_h(self, j: int) -> Tensor:
        """The candidate's (H, H), for the layer below."""
        return self.candidate[j][:, : self.candidate[j].shape[0]]

    def U(self, j: int) -> Tensor:
        """The candidate's (H, S), for the gated sum."""
        return self.candidate[j][:, self.candidate[j].shape[0] if j else 0 :]

    def laid_down(self, uses: int) -> "Together":
        """The same numbers, lying in memory as the forward multiplies them, by the columns of what is heard.

        Of few rows a library takes up to twice as long for factors that lie the other way; but laying them down takes
        as long as some products.
        """
        if uses < WORTH_LAYING_DOWN:
            return self
        return self._replace(
            hearing=[group._replace(U=by_columns(group.U)) for group in self.hearing],
            candidate=[by_columns(matrix) for matrix in self.candidate],
            below=[by_columns(matrix) for matrix in self.below],
        )


def by_columns(matrix: Tensor) -> Tensor:
    """Equal to the matrix; its columns lie together."""
    return matrix.T.contiguous().T


def product(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """a b. Every matrix product of manual_forward.py and manual_backward.py is this one or the next."""
    return torch.mm(a, b, out=out)


def add_product(a: Tensor, b: Tensor, to: Tensor) -> None:
    """to += a b."""
    to.addmm_(a, b)


def candidate_first(rows: Tensor, unit: Unit) -> Tensor:
    """The rows of all gates in the state_dict's order -> the candidate's, then the others'."""
    blocks = list(rows.chunk(len(unit.gates)))
    first = blocks.pop(unit.place(unit.candidate))
    return torch.cat([first, *blocks]) if blocks else rows


def candidate_back(first: Tensor, others: Tensor, unit: Unit) -> Tensor:
    """The inverse of candidate_first: the candidate's rows and the others' -> all in the state_dict's order."""
    blocks = list(others.chunk(len(unit.gates) - 1)) if others.shape[0] else []
    blocks.insert(unit.place(unit.candidate), first)
    return torch.cat(blocks)


def matrices(spec: Spec, w: Weights, j: int) -> Matrices:
    unit, H = UNITS[spec.unit], spec.hidden_size
    joined = candidate_first(w.W, unit) if w.w_g is None else torch.cat([candidate_first(w.W, unit), w.w_g])
    width = spec.input_size if j == 0 or spec.input_skip else 0
    biases = [] if w.b is None else [candidate_first(w.b, unit)] + ([] if w.b_g is None else [w.b_g])
    scales = None
    if w.gain is not None:
        none = torch.zeros_like(w.gain)
        gain, b = (
            rows.unflatten(0, (-1, H)) for rows in (candidate_first(w.gain, unit), biases[0] if biases else none)
        )
        scales = Scale(gain[0], b[0]), Scale(gain[1:], b[1:])
        biases = [none, *biases[1:]] if biases else []
    if w.U_candidate is not None:
        candidate, units, u_g = w.U_candidate, w.U, w.u_g
    else:
        U = candidate_first(w.U, unit)
        candidate, units, u_g = U[:H], U[H:] if w.u_g is None else torch.cat([U[H:], w.u_g]), None
    return Matrices(
        joined[:, :width] if width else None,
        joined[:, width:] if j else None,
        torch.cat(biases) if biases else None,
        candidate,
        units,
        u_g,
        scales,
    )


def together(spec: Spec, weights: Sequence[Weights]) -> Together:
    H, L, K = spec.hidden_size, spec.num_layers, layer_columns(spec) - spec.hidden_size
    layers = [matrices(spec, w, j) for j, w in enumerate(weights)]
    fed = [m.x for m in layers if m.x is not None]
    some = [slice(0, len(fed) * H), slice(L * H, L * H + len(fed) * K)]
    like = layers[0].candidate
    bias = [like.new_zeros(layer_columns(spec)) if m.bias is None else m.bias for m in layers]
    below = [like[:0] if m.below is None else m.below for m in layers]
    return Together(
        torch.cat([*(rows[:H] for rows in fed), *(rows[H:] for rows in fed)]),
        some if len(fed) < L else [slice(0, L * (H + K))],
        torch.cat([*(b[:H] for b in bias), *(b[H:] for b in bias)]),
        hearing_of(spec, layers),
        [m.candidate if m.below is None else torch.cat([m.below[:H], m.candidate], dim=1) for m in layers],
        [rows[H:] for rows in below],
        [m.scales for m in layers if m.scales is not None],
    )


def hearing_of(spec: Spec, layers: list[Matrices]) -> list[Hearing]:
    """Who among the gates of all layers hears what."""
    H, L = spec.hidden_size, spec.num_layers
    own, apart = hearing(spec)
    K, everything = layer_columns(spec) - H, slice(0, L * H)
    if not (own or apart):
        return [Hearing(slice(0, L * K), everything, torch.cat([m.units for m in layers]))]
    found = []
    for j, m in enumerate(layers):
        split, end = j * K + m.units.shape[0], (j + 1) * K
        found.append(Hearing(slice(j * K, split), slice(j * H, (j + 1) * H), m.units))
        if m.u_g is not None:
            found.append(Hearing(slice(split, end), everything, m.u_g))
    return found


def layer_columns(spec: Spec) -> int:
    """C: the columns of one layer."""
    return len(UNITS[spec.unit].gates) * spec.hidden_size + (spec.num_layers if has_gates(spec) else 0)


def split_columns(rows: Tensor, spec: Spec) -> tuple[Tensor, Tensor]:
    """The columns (..., L*C) of all layers together -> candidates (..., L, H), gates (..., L, K)."""
    H, L, K = spec.hidden_size, spec.num_layers, layer_columns(spec) - spec.hidden_size
    return rows[..., : L * H].unflatten(-1, (L, H)), rows[..., L * H :].unflatten(-1, (L, K))


def sources(spec: Spec, j: int, h: Tensor, own: bool) -> Tensor:
    """What layer j hears of h (..., L, H): its own layer's, or all side by side."""
    return h[..., j, :] if own else h.flatten(-2)


def hearing(spec: Spec) -> tuple[bool, bool]:
    """(everything hears its own layer only, only the unit-wise gates do)."""
    return WIRINGS[spec.wiring].hears is own_layer, spec.apart


def has_gates(spec: Spec) -> bool:
    """Whether there are global reset gates to compute."""
    return WIRINGS[spec.wiring].gates is not None


def unflatten_weights(flat: tuple[Tensor | None, ...]) -> list[Weights]:
    size = len(Weights._fields)
    return [Weights(*flat[i : i + size]) for i in range(0, len(flat), size)]  # type: ignore[arg-type]
