"""A layer's matrices as manual.py multiplies them, and back: rows in the order of its columns.

[candidate H | unit-wise gates (G-1)*H | global reset gates n], n = L when gated, else 0; C = G*H + n in all.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from gfrnn.equations import GATES, Spec, Weights


class Matrices(NamedTuple):
    """One layer's weights with their rows in the order of our columns; None where the layer has none."""

    x: Tensor | None  # (C, I)
    below: Tensor | None  # (C, H)
    bias: Tensor | None  # (C,)
    candidate: Tensor  # (H, S): its sources are scaled by the global reset gates
    units: Tensor  # ((G-1)*H + n, S): unit-wise gates, and global reset gates unless `apart`
    u_g: Tensor | None  # (n, L*H) when `apart`: the unit-wise gates hear their own layer only, these hear all


def candidate_first(rows: Tensor, G: int) -> Tensor:
    """state_dict's order (GRU r, z, candidate; LSTM i, f, candidate, o) -> the candidate, then the gates."""
    if G == 1:
        return rows
    blocks = rows.chunk(G)
    return torch.cat([blocks[2], *blocks[:2], *blocks[3:]])


def candidate_third(rows: Tensor, G: int) -> Tensor:
    """The inverse of candidate_first."""
    if G == 1:
        return rows
    blocks = rows.chunk(G)
    return torch.cat([*blocks[1:3], blocks[0], *blocks[3:]])


def matrices(spec: Spec, w: Weights, j: int) -> Matrices:
    G, H = GATES[spec.unit], spec.hidden_size
    joined = candidate_first(w.W, G) if w.w_g is None else torch.cat([candidate_first(w.W, G), w.w_g])
    width = spec.input_size if j == 0 or spec.input_skip else 0
    biases = [] if w.b is None else [candidate_first(w.b, G)] + ([] if w.b_g is None else [w.b_g])
    if w.U_candidate is not None:
        candidate, units, u_g = w.U_candidate, w.U, w.u_g
    else:
        U = candidate_first(w.U, G)
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
    stacked = spec.wiring == "stacked"
    return stacked, spec.gates_see == "own" and not stacked and spec.unit != "tanh"


def unflatten_weights(flat: tuple[Tensor | None, ...]) -> list[Weights]:
    size = len(Weights._fields)
    return [Weights(*flat[i : i + size]) for i in range(0, len(flat), size)]  # type: ignore[arg-type]
