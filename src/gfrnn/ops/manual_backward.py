"""The backward of manual.py, written by hand: README.md beside this file has the derivation and the letters."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gfrnn.equations import UNITS, Spec, untouched
from gfrnn.ops.manual_units import MATHS
from gfrnn.ops.matrices import Matrices, candidate_back, has_gates, hearing, matrices, sources, unflatten_weights

Factor = Callable[[Tensor], Tensor]


def gradients(
    spec: Spec,
    tensors: list[Any],
    h: Tensor,
    act: Tensor,
    c: Tensor,
    q: Tensor,
    dh: Tensor | None,
    dh_n: Tensor | None,
    dc_n: Tensor | None,
    dg: Tensor | None,
    need_dx: bool,
    factor: Factor = untouched,
) -> list[Any]:
    """Gradients in the order of `tensors`: x, h0, c0, lengths, masks, then each layer's weights.

    Every delta and every source enters products only (or the sum of a bias), so that `factor` is applied to each once.
    """
    x, h0, c0, lengths, masks, *flat = tensors
    layers = [matrices(spec, w, j).as_factors(factor) for j, w in enumerate(unflatten_weights(tuple(flat)))]
    past, past_c = _one_step_earlier(h, h0, lengths), None if c0 is None else _one_step_earlier(c, c0, lengths)
    if dg is not None and (not has_gates(spec) or dg.numel() == 0):
        dg = None
    d_now, d_c, delta, dq = _through_time(
        spec, layers, act, past, c, past_c, q, lengths, masks, (dh, dh_n, dc_n, dg), h0, factor
    )
    up = h if masks is None else h[:, :, :-1] * masks
    dx = torch.zeros_like(x) if need_dx else None
    d_weights: list[Tensor | None] = []
    for j, m in enumerate(layers):
        d_j = delta[:, :, j].flatten(0, 1)
        if dx is not None and m.x is not None:
            dx += delta[:, :, j] @ m.x
        # The gated sum's gradient enters U of the candidate as dq, where it was kept, or as the candidate's own delta.
        d_candidate = d_j[:, : spec.hidden_size] if dq is None else dq[:, :, j].flatten(0, 1)
        d_weights += _weight_gradients(spec, m, j, x, past, act, up, d_j, d_candidate, factor)
    dc0 = None if d_c is None else d_c.transpose(0, 1).contiguous()
    return [dx, d_now.transpose(0, 1).contiguous(), dc0, None, None, *d_weights]


def _one_step_earlier(values: Tensor, first: Tensor, lengths: Tensor | None) -> Tensor:
    """(T, B, L, H) shifted by one step, starting from `first` (L, B, H). Beyond a row's end nobody looks."""
    return torch.cat([first.transpose(0, 1)[None], values[:-1]])


def _through_time(
    spec: Spec,
    layers: list[Matrices],
    act: Tensor,
    past: Tensor,
    c: Tensor,
    past_c: Tensor | None,
    q: Tensor,
    lengths: Tensor | None,
    masks: Tensor | None,
    given: tuple[Tensor | None, ...],
    h0: Tensor,
    factor: Factor,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """dL/dh0, dL/dc0 (B, L, H), the deltas (T, B, L, C) of all pre-activations and, if kept, of the gated sums."""
    dh, dh_n, dc_n, dg = given
    T, B, L, _ = act.shape
    G, H = len(UNITS[spec.unit].gates), spec.hidden_size
    maths, gated = MATHS[spec.unit], has_gates(spec)
    own, apart = hearing(spec)
    joined = None if own or apart else torch.cat([m.units for m in layers])
    carried = h0.new_zeros(B, L, H) if dh_n is None else dh_n.transpose(0, 1)
    d_c = None if past_c is None else (h0.new_zeros(B, L, H) if dc_n is None else dc_n.transpose(0, 1))
    deltas, dqs = [], []
    for t in range(T - 1, -1, -1):
        running = None if lengths is None else (t < lengths)[:, None, None]
        total = carried if dh is None else carried + (dh[t] if running is None else torch.where(running, dh[t], 0.0))
        alive = total if running is None else torch.where(running, total, 0.0)
        d_h, d_past = list(alive.unbind(1)), torch.zeros_like(alive)
        new_c: list[Any] = []
        rows: list[Any] = [None] * L
        q_rows: list[Any] = [None] * L
        for j in range(L - 1, -1, -1):
            m, a, h_prev = layers[j], act[t, :, j], past[t]
            c_j = None if past_c is None else (c[t, :, j], past_c[t, :, j], d_c[:, j])  # type: ignore[index]
            kept_q = q[t, :, j] if maths.keeps_q else None
            d_pre, d_q, d_c_prev, direct = maths.backward(a, kept_q, h_prev[:, j], c_j, d_h[j])
            d_pre, d_q = factor(d_pre), factor(d_q)
            if direct is not None:
                d_past[:, j] += direct
            d_scaled = d_q @ m.candidate
            if own:
                d_past[:, j] += d_scaled
            elif not gated:
                d_past += d_scaled.unflatten(1, (L, H))
            else:
                g, d_scaled = a[:, G * H :], d_scaled.unflatten(1, (L, H))
                d_gate = (d_scaled * h_prev).sum(-1)
                if dg is not None:
                    d_gate = d_gate + (dg[t, :, j] if running is None else torch.where(running[:, 0], dg[t, :, j], 0.0))
                d_past += g[:, :, None] * d_scaled
                d_pre = torch.cat([d_pre, factor(d_gate * g * (1 - g))], dim=1)
            if joined is None:
                split = (G - 1) * H
                d_past[:, j] += d_pre[:, H : H + split] @ m.units
                if m.u_g is not None:
                    d_past += (d_pre[:, H + split :] @ m.u_g).unflatten(1, (L, H))
            if m.below is not None:
                d_up = d_pre @ m.below
                d_h[j - 1] = d_h[j - 1] + (d_up if masks is None else d_up * masks[t, :, j - 1])
            rows[j], q_rows[j] = d_pre, d_q
            new_c.append(d_c_prev)
        delta = torch.stack(rows, 1)
        if joined is not None:
            d_past += (delta[:, :, H:].flatten(1) @ joined).unflatten(1, (L, H))
        carried = d_past if running is None else torch.where(running, d_past, total)
        if d_c is not None:
            earlier = torch.stack(new_c[::-1], 1)
            d_c = earlier if running is None else torch.where(running, earlier, d_c)
        if running is not None:
            delta = torch.where(running, delta, 0.0)
        deltas.append(delta)
        if maths.keeps_q:
            d_q_all = torch.stack(q_rows, 1)
            dqs.append(d_q_all if running is None else torch.where(running, d_q_all, 0.0))
    return carried, d_c, torch.stack(deltas[::-1]), torch.stack(dqs[::-1]) if dqs else None


def _weight_gradients(
    spec: Spec,
    m: Matrices,
    j: int,
    x: Tensor,
    past: Tensor,
    act: Tensor,
    up: Tensor,
    delta: Tensor,
    d_candidate: Tensor,
    factor: Factor,
) -> list[Tensor | None]:
    """One layer's, in the order of equations.Weights: each is one product over all (t, b)."""
    unit, H = UNITS[spec.unit], spec.hidden_size
    G = len(unit.gates)
    own, apart = hearing(spec)
    gated = has_gates(spec)
    parts = []
    if m.x is not None and x.is_floating_point():
        parts.append(delta.T @ factor(x.flatten(0, 1)))
    elif m.x is not None:
        parts.append(delta.new_zeros(m.x.shape[1], delta.shape[1]).index_add_(0, x.flatten(), delta).T)
    if m.below is not None:
        parts.append(delta.T @ factor(up[:, :, j - 1].flatten(0, 1)))
    d_in = torch.cat(parts, dim=1)
    scaled = factor(past * act[:, :, j, G * H :, None] if gated else past)
    past = factor(past)
    d_cand = d_candidate.T @ sources(spec, j, scaled, own).flatten(0, 1)
    d_units = delta[:, H : G * H].T @ sources(spec, j, past, own or apart).flatten(0, 1)
    d_u_g = delta[:, G * H :].T @ past.flatten(2).flatten(0, 1) if gated else None
    bias = None if m.bias is None else delta.sum(0)
    d_U = d_units if apart else candidate_back(torch.cat([d_cand, d_units]), unit)
    return [
        candidate_back(d_in[: G * H], unit),
        d_U,
        d_cand if apart else None,
        None if bias is None else candidate_back(bias[: G * H], unit),
        d_in[G * H :] if gated else None,
        d_u_g,
        bias[G * H :] if bias is not None and gated else None,
    ]
