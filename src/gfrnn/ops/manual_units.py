"""The units of manual.py, forward and backward, on a layer's row [candidate | unit-wise gates | ...] of README.md.

`forward(fed, q, gates, h_prev, c_prev)` -> h, c, candidate: from what is fed to the candidate, the gated sum q, and the
activations of the gates. `backward(a, q, h_prev, cell, dh)` -> the deltas of candidate and unit-wise gates, of q, of
c_{t-1}, and what reaches h_{t-1} directly: from the activations a, and the cell's (c_t, c_{t-1}, dL/dc_t).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, tanh

from gfrnn.equations import GRU, LSTM, TANH

Cell = tuple[Tensor, Tensor, Tensor]
Forward = tuple[Tensor, Tensor | None, Tensor]
Backward = tuple[Tensor, Tensor, Tensor | None, Tensor | None]


class Maths(NamedTuple):
    forward: Callable[..., Forward]
    backward: Callable[..., Backward]
    keeps_q: bool = False  # whether the backward asks for the gated sum


def tanh_forward(fed: Tensor, q: Tensor, gates: Tensor, h_prev: Tensor, c_prev: None) -> Forward:
    candidate = tanh(fed + q)
    return candidate, None, candidate


def tanh_backward(a: Tensor, q: None, h_prev: Tensor, cell: None, dh: Tensor) -> Backward:
    candidate = a[:, : dh.shape[1]]
    d = dh * (1 - candidate * candidate)
    return d, d, None, None


def gru_forward(fed: Tensor, q: Tensor, gates: Tensor, h_prev: Tensor, c_prev: None) -> Forward:
    H = h_prev.shape[1]
    r, z = gates[:, :H], gates[:, H : 2 * H]
    candidate = tanh(fed + r * q)
    return (1 - z) * h_prev + z * candidate, None, candidate


def gru_backward(a: Tensor, q: Tensor, h_prev: Tensor, cell: None, dh: Tensor) -> Backward:
    H = dh.shape[1]
    candidate, r, z = a[:, :H], a[:, H : 2 * H], a[:, 2 * H : 3 * H]
    d = dh * z * (1 - candidate * candidate)
    d_r = d * q * r * (1 - r)
    d_z = dh * (candidate - h_prev) * z * (1 - z)
    return torch.cat([d, d_r, d_z], dim=1), d * r, None, dh * (1 - z)


def lstm_forward(fed: Tensor, q: Tensor, gates: Tensor, h_prev: Tensor, c_prev: Tensor) -> Forward:
    H = h_prev.shape[1]
    i, f, o = gates[:, :H], gates[:, H : 2 * H], gates[:, 2 * H : 3 * H]
    candidate = tanh(fed + q)
    c = f * c_prev + i * candidate
    return o * tanh(c), c, candidate


def lstm_backward(a: Tensor, q: None, h_prev: Tensor, cell: Cell, dh: Tensor) -> Backward:
    H = dh.shape[1]
    c, c_prev, d_c = cell
    candidate, i, f, o = a[:, :H], a[:, H : 2 * H], a[:, 2 * H : 3 * H], a[:, 3 * H : 4 * H]
    tanh_c = tanh(c)
    d_c = d_c + dh * o * (1 - tanh_c * tanh_c)
    d = d_c * i * (1 - candidate * candidate)
    d_i = d_c * candidate * i * (1 - i)
    d_f = d_c * c_prev * f * (1 - f)
    d_o = dh * tanh_c * o * (1 - o)
    return torch.cat([d, d_i, d_f, d_o], dim=1), d, d_c * f, None


MATHS = {
    TANH.name: Maths(tanh_forward, tanh_backward),
    GRU.name: Maths(gru_forward, gru_backward, keeps_q=True),
    LSTM.name: Maths(lstm_forward, lstm_backward),
}
