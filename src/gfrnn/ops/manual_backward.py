"""The backward of manual.py through time, by hand: README.md beside this file has the derivation and the letters."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gfrnn.equations import Spec, State, Weights, untouched
from gfrnn.ops.manual_forward import (
    Heard,
    Kept,
    after_end,
    blocks,
    hears,
    last_of,
    layer,
    layers_gates,
    of,
    one_step_earlier,
    steps,
)
from gfrnn.ops.manual_norm import Normals, places
from gfrnn.ops.manual_sums import Sums
from gfrnn.ops.manual_units import MATHS, Back, sigmoid_backward
from gfrnn.ops.matrices import Together, add_product, has_gates, hearing, product, split_columns, together


class Given(NamedTuple):
    """Gradients of what the forward returned; None where nobody asked."""

    h: Tensor | None  # (T, B, L, H)
    h_n: Tensor | None  # (L, B, H)
    c_n: Tensor | None
    g: Tensor | None  # (T, B, L, n)


class Block(NamedTuple):
    """Some timesteps as the forward left them, and the gradients given for them."""

    act: Tensor  # (timesteps, B, L*C)
    normals: Normals | None
    past: Sequence[Tensor]  # h_{t-1}, each (B, L, H)
    c: Tensor | None  # (timesteps, B, L, H)
    c_past: Sequence[Tensor] | None
    q: Tensor | None
    masks: Tensor | None
    dh: Tensor | None
    dc: Tensor | None
    dg: Tensor | None


def gradients(
    spec: Spec,
    weights: Sequence[Weights],
    x: Tensor,
    state: State,
    lengths: Tensor | None,
    masks: Tensor | None,
    h: Tensor,
    kept: Kept,
    given: Given,
    need_dx: bool,
) -> list[Any]:
    """Gradients of x, h0, c0, and of every field of each layer's Weights."""
    net, some = together(spec, weights), blocks(*h.shape[:2])
    sums = Sums(spec, net, x)
    dx = x.new_empty(x.shape) if need_dx else None
    delta, dq = torch.empty_like(kept.acts[0]), None if kept.q is None else torch.empty_like(h[some[0]])
    settled = torch.empty_like(delta) if kept.normals else delta
    dh, dc, dg = given.h, None, given.g
    d_h, d_c = torch.zeros_like(h[0]), None if kept.c is None else torch.zeros_like(h[0])
    if lengths is not None:
        dh, dc, dg = at_their_ends(given, lengths, h)
    else:
        for d, last in ((d_h, given.h_n), (d_c, given.c_n)):
            if d is not None and last is not None:
                d.copy_(last.transpose(0, 1))
    h0, c0 = state.map(lambda part: part.transpose(0, 1))
    normals: Sequence[Normals | None] = kept.normals or [None] * len(some)
    for part, act, its in reversed(list(zip(some, kept.acts, normals, strict=True))):
        past, c_past = one_step_earlier(h, h0, part), None if kept.c is None else one_step_earlier(kept.c, c0, part)
        parts = [of(tensor, part) for tensor in (kept.q, masks, dh, dc, dg)]
        block, size = Block(act, its, past, of(kept.c, part), c_past, *parts), len(act)
        through_block(spec, net, block, d_h, d_c, delta[:size], settled[:size], of(dq, slice(0, size)))
        sums.add(x[part], past, h[part], block.masks, act, delta[:size], of(dq, slice(0, size)))
        sums.add_settled(delta[:size], settled[:size], its)
        if dx is not None:
            product(sums.of_fed(delta[:size]), net.x, out=dx[part].flatten(0, 1))
    first = State(d_h, d_c).map(lambda d: last_of(d[None], None))
    return [dx, *first, *sums.of_weights(weights[0].b is not None)]


def at_their_ends(given: Given, lengths: Tensor, h: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """What is given for the last states, at each row's last step, and nothing after it: for h, c (T, B, L, H) and g.

    So no gradient ever enters a row that has ended, and all its deltas are 0.
    """
    ended, ends = after_end(len(h), lengths), (lengths - 1, torch.arange(len(lengths), device=lengths.device))
    dh = torch.zeros_like(h) if given.h is None else given.h.masked_fill(ended, 0.0)
    if given.h_n is not None:
        dh[ends] += given.h_n.transpose(0, 1)
    dc = None if given.c_n is None else torch.zeros_like(h)
    if dc is not None and given.c_n is not None:
        dc[ends] = given.c_n.transpose(0, 1)
    return dh, dc, None if given.g is None else given.g.masked_fill(ended, 0.0)


def through_block(
    spec: Spec,
    net: Together,
    block: Block,
    d_past: Tensor,
    d_c: Tensor | None,
    delta: Tensor,
    settled: Tensor,
    dq: Tensor | None,
) -> None:
    """From the last of some timesteps to the first, layers from the top down: fills `delta`, `settled` and `dq`.

    `settled` are the gradients of what activation functions are applied to, `delta` those of the sums of products: the
    same tensor, unless the former are the latter normalised; of the global reset gates `delta` alone has them.
    `d_past` and `d_c` (B, L, H) are what t+1 carried back, and leave as what the first of the timesteps does.
    """
    B, L, H = d_past.shape
    maths, gated, own = MATHS[spec.unit], has_gates(spec), hearing(spec)[0]
    (candidates, gates), (d_candidates, d_gates) = split_columns(block.act, spec), split_columns(settled, spec)
    of_sums, gates_of_sums = split_columns(delta, spec)
    normalised = None if block.normals is None else places(spec, net.scales, block.normals, settled, delta)
    at_once = steps(spec, candidates, gates, c=block.c, q=block.q, h_prev=block.past, c_prev=block.c_past)
    d_at_once = steps(spec, d_candidates, d_gates)
    layers = [steps(spec, candidates[:, :, j], gates[:, :, j]) for j in range(L)]
    d_layers = [steps(spec, d_candidates[:, :, j], d_gates[:, :, j], q=layer(dq, j)) for j in range(L)]
    its_gates, its_d_gates = layers_gates(spec, gates), layers_gates(spec, gates_of_sums)
    its_candidates = [of_sums[:, :, j].unbind(0) for j in range(L)]
    hearings = [hears(group, delta[..., L * H :]) for group in net.hearing]
    sent, d_h, slopes = Heard(spec, B, like=delta), torch.empty_like(d_past), torch.empty_like(d_past)
    gate_terms, d_star = torch.empty_like(sent.scaled), d_past.flatten(1)
    cells = [None] * L if d_c is None else d_c.unbind(1)
    backs = [Back(*rows) for rows in zip(d_h.unbind(1), cells, d_past.unbind(1), slopes.unbind(1), strict=True)]
    dh = None if block.dh is None else block.dh.unbind(0)
    for t in range(len(delta) - 1, -1, -1):
        d_h.copy_(d_past) if dh is None else torch.add(d_past, dh[t], out=d_h)
        if d_c is not None and block.dc is not None:
            d_c.add_(block.dc[t])
        maths.slopes(at_once[t], d_at_once[t], slopes)
        d_past.zero_()
        h_prev = block.past[t]
        for j in range(L - 1, -1, -1):
            d_step, (d_gates_j, d_g), (_, g), back = d_layers[j][t], its_d_gates[j][t], its_gates[j][t], backs[j]
            candidate, units = (None, None) if normalised is None else normalised[j][t]
            maths.deltas(layers[j][t], d_step, back, untouched if candidate is None else candidate.unsettle)
            if units is not None:
                units.unsettle(units.values)
            if not maths.keeps_q:
                product(its_candidates[j][t], net.candidate[j], out=sent.flat if j else sent.flat_scaled)
            else:
                product(d_step.q, net.U(j), out=sent.flat_scaled)
                if j:
                    product(its_candidates[j][t], net.W_h(j), out=sent.up)
            if gated:
                d_gate = torch.mul(sent.scaled, h_prev, out=gate_terms).sum(-1, keepdim=True)
                if block.dg is not None:
                    d_gate += block.dg[t, :, j, :, None]
                sigmoid_backward(d_gate, g, grad_input=d_g)
                d_past.add_(torch.mul(sent.scaled, g, out=gate_terms))
            elif own:
                back.h_prev.add_(sent.scaled[:, 0])
            else:
                d_past.add_(sent.scaled)
            if j:
                add_product(d_gates_j, net.below[j], sent.up)
                below = backs[j - 1].h
                below.add_(sent.up) if block.masks is None else below.addcmul_(sent.up, block.masks[t, :, j - 1])
        for group, its in zip(net.hearing, hearings, strict=True):
            add_product(its[t], group.U, d_star[:, group.sources])
