"""manual.py's timestep as a function of tensors, nothing in place: what a compiler traces, what writes text, and, with
autograd's backward, products in bfloat16.

The same hoisting as README.md derives, layer by layer, so that no tensor is written twice.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, sigmoid

from gfrnn.equations import EXACT, UNITS, Products, Spec, State, Weights, settled, untouched
from gfrnn.ops.manual_units import MATHS
from gfrnn.ops.matrices import Matrices, has_gates, hearing, matrices, sources
from gfrnn.products import products_in


class Joined:
    """All layers' matrices, with one product per timestep for whatever hears the same h*_{t-1}."""

    def __init__(self, spec: Spec, weights: Sequence[Weights], products: Products) -> None:
        self.spec, self.products = spec, products
        self.own, self.apart = hearing(spec)
        self.layers = [matrices(spec, w, j).as_factors(products.factor) for j, w in enumerate(weights)]
        # Unit-wise and global gates of all layers hear the same: one product.
        self.joined = None if self.own or self.apart else torch.cat([m.units for m in self.layers]).T

    def times(self, numbers: Tensor, factors: Tensor) -> Tensor:
        """Rows of numbers times a matrix that holds factors already (products.py)."""
        return self.products.result(self.products.factor(numbers) @ factors)

    def step(
        self, fed: list[Tensor], h_prev: Tensor, c_prev: Tensor | None, masks: Tensor | None
    ) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        """One timestep from h_prev, c_prev (B, L, H): h, c, and every layer's global reset gates (B, n)."""
        spec, own, apart = self.spec, self.own, self.apart
        G, H, L = len(UNITS[spec.unit].gates), spec.hidden_size, spec.num_layers
        unit, gated = MATHS[spec.unit].plain, has_gates(spec)
        heard = None if self.joined is None else self.times(h_prev.flatten(1), self.joined).chunk(L, dim=1)
        h_rows: list[Tensor] = []
        c_rows: list[Any] = []
        g_rows: list[Tensor] = []
        for j, m in enumerate(self.layers):
            pre = fed[j]
            if m.below is not None:
                up = h_rows[-1] if masks is None else h_rows[-1] * masks[:, j - 1]
                pre = pre + self.times(up, m.below.T)
            past = self.times(sources(spec, j, h_prev, own or apart), m.units.T) if heard is None else heard[j]
            if m.u_g is not None:
                past = torch.cat([past, self.times(h_prev.flatten(1), m.u_g.T)], dim=1)
            gates = sigmoid(settled_gates(pre[..., H:] + past, m))
            g = gates[:, (G - 1) * H :]
            scaled = h_prev * g[:, :, None] if gated else h_prev
            q = self.times(sources(spec, j, scaled, own), m.candidate.T)
            units = [gates[:, k * H : (k + 1) * H] for k in range(G - 1)]
            settle = untouched if m.scales is None else partial(settled, b=m.scales[0])
            h_j, c_j = unit(pre[..., :H], q, units, h_prev[:, j], None if c_prev is None else c_prev[:, j], settle)
            h_rows.append(h_j)
            c_rows.append(c_j)
            g_rows.append(g)
        return torch.stack(h_rows, 1), None if c_prev is None else torch.stack(c_rows, 1), g_rows


def settled_gates(a: Tensor, m: Matrices) -> Tensor:
    """Pre-activations (B, (G-1)*H + n) of a layer's gates; those of the unit-wise ones normalised, if any are."""
    if m.scales is None or not m.scales[1].gain.numel():
        return a
    units = m.scales[1].gain.numel()
    normalised = settled(a[:, :units].unflatten(-1, m.scales[1].gain.shape), m.scales[1])
    return torch.cat([normalised.flatten(1), a[:, units:]], dim=1)


class Steps:
    """Single timesteps without gradients: the matrices are joined once, not at every step as `scan` has to."""

    @torch.no_grad()
    def __init__(self, spec: Spec, weights: Sequence[Weights], products: torch.dtype | None = None) -> None:
        self.net = Joined(spec, weights, products_in(products))
        every = torch.arange(spec.input_size, device=weights[0].W.device)
        self.tables = [_feed(every, m, EXACT) for m in self.net.layers]  # W x + b of every index, or just b

    @torch.no_grad()
    def __call__(self, index: Tensor, state: State) -> State:
        """The state after the symbols `index` (B,)."""
        fed = [table if table.dim() == 1 else table[index] for table in self.tables]
        before = state.map(lambda part: part.transpose(0, 1))
        h, c, _ = self.net.step(fed, before.h, before.c, None)
        return State(h, c).map(lambda part: part.transpose(0, 1))


def scan(
    spec: Spec,
    weights: Sequence[Weights],
    x: Tensor,
    state: State,
    lengths: Tensor | None,
    masks: Tensor | None,
    products: torch.dtype | None,
) -> tuple[Tensor, State, Tensor]:
    """All timesteps: h (T, B, L, H), the last state, and the gates (T, B, L, n)."""
    net = Joined(spec, weights, products_in(products))
    fed = [_feed(x, m, net.products) for m in net.layers]  # W x_t + b of all timesteps
    h_prev, c_prev = state.map(lambda part: part.transpose(0, 1))
    hs, gs = [], []
    for t in range(x.shape[0]):
        now = [f if f.dim() == 1 else f[t] for f in fed]
        h, c, g_rows = net.step(now, h_prev, c_prev, None if masks is None else masks[t])
        g = torch.stack(g_rows, 1)
        if lengths is None:
            hs.append(h)
            gs.append(g)
        else:
            running = (t < lengths)[:, None, None]
            hs.append(torch.where(running, h, 0.0))
            gs.append(torch.where(running, g, 0.0))
            h = torch.where(running, h, h_prev)
            c = None if c is None or c_prev is None else torch.where(running, c, c_prev)
        h_prev, c_prev = h, c
    last = State(h_prev, c_prev).map(lambda part: part.transpose(0, 1).contiguous())
    return torch.stack(hs), last, torch.stack(gs)


def _feed(x: Tensor, m: Matrices, products: Products) -> Tensor:
    """W x_t + b for all timesteps (T, B, C), or just b (C,)."""
    bias = m.candidate.new_zeros(m.candidate.shape[0] + m.units.shape[0] + (0 if m.u_g is None else m.u_g.shape[0]))
    bias = bias if m.bias is None else m.bias
    if products is not EXACT:  # whose gradient is a sum of rounded ones
        bias = products.result(bias.expand(*x.shape[:2], -1))
    if m.x is None:
        return bias
    if x.is_floating_point():
        return products.result(products.factor(x) @ m.x.T) + bias
    return products.result(torch.nn.functional.embedding(x, m.x.T)) + bias
