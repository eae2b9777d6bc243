"""The manual backend: the same maths in plain torch, hoisted, with the backward written by hand. Runs on any device.

README.md beside this file derives it in the paper's letters. Three things leave the time loop: the products with x_t of
all timesteps (one product before it), the recurrent products of all layers with h*_{t-1} (one product per step instead
of one per layer), and every weight gradient (one product after it).

A layer's row of pre-activations, activations or their gradients (`delta`) has C = G*H + n columns:
[candidate H | unit-wise gates (G-1)*H | global reset gates n], n = L if the wiring has any, else 0.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, sigmoid

from gfrnn.equations import EXACT, FEEDBACK, GATED, STACKED, UNITS, Products, Spec, State, Weights
from gfrnn.ops.again import gradients_again, is_asked_for_more
from gfrnn.ops.call import Call, Scanned, constant_gates
from gfrnn.ops.declared import Implements, Transform
from gfrnn.ops.manual_backward import gradients
from gfrnn.ops.manual_units import MATHS
from gfrnn.ops.matrices import Matrices, has_gates, hearing, matrices, sources, unflatten_weights
from gfrnn.products import products_in

IMPLEMENTS = Implements(
    units=MATHS.keys(),
    wirings=[wiring.name for wiring in (GATED, FEEDBACK, STACKED)],
    transforms=[Transform.SECOND_DERIVATIVES, Transform.COMPILE, Transform.ONNX],
)


def why_unavailable() -> list[str]:
    return []


def scan(call: Call) -> Scanned:
    x, lengths = call.x, call.lengths
    if lengths is not None:  # what stands in the padding (NaN, or no index at all) must not meet the weights
        running = torch.arange(x.shape[0], device=x.device)[:, None] < lengths
        x = torch.where(running if x.dim() == 2 else running[:, :, None], x, torch.zeros_like(x))
    flat = [tensor for w in call.weights for tensor in w]
    # torch.compile derives a backward of its own from the traced forward, and cannot trace this Function's.
    run = _Scan.forward if torch.compiler.is_compiling() else _Scan.apply
    h, h_n, c_n, g, *_ = run(call.spec, call.products, x, *call.state, lengths, call.dropout_masks, *flat)
    state = State(h_n, c_n if UNITS[call.spec.unit].has_cell else None)
    if not call.return_gates:
        return Scanned(h.flatten(2), state, None)
    return Scanned(h.flatten(2), state, g if has_gates(call.spec) else constant_gates(call))


class Joined:
    """All layers' matrices, with one product per timestep for whatever hears the same h*_{t-1}."""

    def __init__(self, spec: Spec, weights: Sequence[Weights], products: Products = EXACT) -> None:
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
    ) -> tuple[list[Tensor], list[Any], list[Tensor], list[Tensor]]:
        """One timestep from h_prev, c_prev (B, L, H): per layer h, c, [candidate | gates] and the gated sum q."""
        spec, own, apart = self.spec, self.own, self.apart
        G, H, L = len(UNITS[spec.unit].gates), spec.hidden_size, spec.num_layers
        unit_forward, gated = MATHS[spec.unit].forward, has_gates(spec)
        heard = None if self.joined is None else self.times(h_prev.flatten(1), self.joined).chunk(L, dim=1)
        h_rows: list[Tensor] = []
        c_rows: list[Any] = []
        act_rows, q_rows = [], []
        for j, m in enumerate(self.layers):
            pre = fed[j]
            if m.below is not None:
                up = h_rows[-1] if masks is None else h_rows[-1] * masks[:, j - 1]
                pre = pre + self.times(up, m.below.T)
            past = self.times(sources(spec, j, h_prev, own or apart), m.units.T) if heard is None else heard[j]
            if m.u_g is not None:
                past = torch.cat([past, self.times(h_prev.flatten(1), m.u_g.T)], dim=1)
            gates = sigmoid(pre[..., H:] + past)
            scaled = h_prev * gates[:, (G - 1) * H :, None] if gated else h_prev
            q = self.times(sources(spec, j, scaled, own), m.candidate.T)
            c_own = None if c_prev is None else c_prev[:, j]
            h_j, c_j, candidate = unit_forward(pre[..., :H], q, gates, h_prev[:, j], c_own)
            h_rows.append(h_j)
            c_rows.append(c_j)
            act_rows.append(torch.cat([candidate, gates], dim=1))
            q_rows.append(q)
        return h_rows, c_rows, act_rows, q_rows


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
        h, c, *_ = self.net.step(
            fed, state.h.transpose(0, 1), None if state.c is None else state.c.transpose(0, 1), None
        )
        return State(torch.stack(h), None if state.c is None else torch.stack(c))


class _Scan(torch.autograd.Function):
    """All timesteps. Outputs beyond the first four are what the backward needs."""

    @staticmethod
    def forward(
        spec: Spec,
        products: torch.dtype | None,
        x: Tensor,
        h0: Tensor,
        c0: Tensor | None,
        lengths: Tensor | None,
        masks: Tensor | None,
        *flat: Tensor | None,
    ) -> tuple[Tensor, ...]:
        T = x.shape[0]
        G, H = len(UNITS[spec.unit].gates), spec.hidden_size
        gated = has_gates(spec)
        net = Joined(spec, unflatten_weights(flat), products_in(products))
        fed = [_feed(x, m, net.products) for m in net.layers]  # W x_t + b of all timesteps
        h_prev, c_prev = h0.transpose(0, 1), None if c0 is None else c0.transpose(0, 1)
        hs, acts, qs = [], [], []
        cs: list[Any] = []
        for t in range(T):
            now = [f if f.dim() == 1 else f[t] for f in fed]
            h_rows, c_rows, act_rows, q_rows = net.step(now, h_prev, c_prev, None if masks is None else masks[t])
            h = torch.stack(h_rows, 1)
            c = None if c_prev is None else torch.stack(c_rows, 1)
            if lengths is not None:
                running = (t < lengths)[:, None, None]
                hs.append(torch.where(running, h, 0.0))
                h = torch.where(running, h, h_prev)
                c = None if c is None or c_prev is None else torch.where(running, c, c_prev)
            else:
                hs.append(h)
            acts.append(torch.stack(act_rows, 1))
            if MATHS[spec.unit].keeps_q:
                qs.append(torch.stack(q_rows, 1))
            h_prev, c_prev = h, c
            cs.append(c)
        none = h0.new_empty(0)
        act = torch.stack(acts)  # (T, B, L, C)
        g = act[..., G * H :].clone() if gated else none
        if gated and lengths is not None:
            g *= (torch.arange(T, device=x.device)[:, None] < lengths)[:, :, None, None]
        c_n = none if c_prev is None else c_prev.transpose(0, 1).contiguous()
        kept_c = none if c0 is None else torch.stack(cs)
        kept_q = torch.stack(qs) if qs else h0.new_empty(0)
        return torch.stack(hs), h_prev.transpose(0, 1).contiguous(), c_n, g, act, kept_c, kept_q

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        spec, products, *tensors = inputs
        h, _, _, _, *kept = output
        ctx.mark_non_differentiable(*kept)
        ctx.save_for_backward(*tensors, h, *kept)
        ctx.spec, ctx.products = spec, products
        ctx.set_materialize_grads(False)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        """Never run: IMPLEMENTS declines. But having it lets calls through that a vmap around them does not concern."""
        raise RuntimeError('backend "manual" does not run under vmap: use backend="reference"')

    @staticmethod
    def backward(ctx: Any, dh: Any, dh_n: Any, dc_n: Any, dg: Any, *_: Any) -> tuple[Any, ...]:
        *tensors, h, act, c, q = ctx.saved_tensors
        if is_asked_for_more((dh, dh_n, dc_n, dg)):
            x, h0, c0, lengths, masks, *flat = tensors
            weights = unflatten_weights(tuple(flat))
            call = Call(x, State(h0, c0), weights, ctx.spec, lengths, masks, products=ctx.products)
            given = (None if dh is None else dh.reshape(*h.shape[:2], h.shape[2] * h.shape[3]), dh_n, dc_n, dg)
            dx, dh0, dc0, *d_flat = gradients_again(call, given)
            return None, None, dx, dh0, dc0, None, None, *d_flat
        given, factor = (dh, dh_n, dc_n, dg), products_in(ctx.products).factor
        return None, None, *gradients(ctx.spec, tensors, h, act, c, q, *given, ctx.needs_input_grad[2], factor)


def _feed(x: Tensor, m: Matrices, products: Products) -> Tensor:
    """W x_t + b for all timesteps (T, B, C), or just b (C,)."""
    bias = m.candidate.new_zeros(m.candidate.shape[0] + m.units.shape[0] + (0 if m.u_g is None else m.u_g.shape[0]))
    bias = bias if m.bias is None else m.bias
    if products is not EXACT:
        bias = products.result(bias.expand(*x.shape[:2], -1))
    if m.x is None:
        return bias
    if x.is_floating_point():
        return products.result(products.factor(x) @ m.x.T) + bias
    return products.result(torch.nn.functional.embedding(x, m.x.T)) + bias
