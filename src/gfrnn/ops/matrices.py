"""A layer's matrices as manual.py multiplies them, and back: rows in the order of its columns.

[candidate H | unit-wise gates (G-1)*H | global reset gates n], n = L if the wiring has any, else 0; C = G*H + n in all.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from gfrnn.equations import UNITS, WIRINGS, Spec, Unit, Weights, own_layer


class Matrices(NamedTuple):
    """One layer's weights with their rows in the order of our columns; None where the layer has none."""

    x: Tensor | None  # (C, I)
    below: Tensor | None  # (C, H)
    bias: Tensor | None  # (C,)
    candidate: Tensor  # (H, S): its sources are scaled by the global reset gates
    units: Tensor  # ((G-1)*H + n, S): unit-wise gates, and global reset gates unless `apart`
    u_g: Tensor | None  # (n, L*H) when `apart`: the unit-wise gates hear their own layer only, these hear all

    def as_factors(self, factor: Callable[[Tensor], Tensor]) -> "Matrices":
        """As products read them (products.py); the bias is no factor."""
        factors = {name: factor(m) for name, m in self._asdict().items() if m is not None and name != "bias"}
        return self._replace(**factors)


def candidate_first(rows: Tensor, unit: Unit) -> Tensor:
    """The rows of all gates in the state_dict's order -> the candidate's, then the others'."""
    blocks = list(rows.chunk(len(unit.gates)))
    first = blocks.pop(unit.place(unit.candidate))
    return torch.cat([first, *blocks]) if blocks else rows


def candidate_back(rows: Tensor, unit: Unit) -> Tensor:
    """The inverse of candidate_first."""
    first, *blocks = rows.chunk(len(unit.gates))
    blocks.insert(unit.place(unit.candidate), first)
    return torch.cat(blocks) if len(blocks) > 1 else rows


def matrices(spec: Spec, w: Weights, j: int) -> Matrices:
    unit, H = UNITS[spec.unit], spec.hidden_size
    joined = candidate_first(w.W, unit) if w.w_g is None else torch.cat([candidate_first(w.W, unit), w.w_g])
    width = spec.input_size if j == 0 or spec.input_skip else 0
    biases = [] if w.b is None else [candidate_first(w.b, unit)] + ([] if w.b_g is None else [w.b_g])
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
    )


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
