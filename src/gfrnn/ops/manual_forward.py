"""The forward of manual.py: all timesteps, in place. README.md beside this file has the derivation and the letters.

One buffer (T, B, L*C) holds W x_t + b first, pre-activations then, and activations in the end; its columns are those of
`matrices.together`. Every view of every timestep is taken before the loop: taking one costs as much as a small product.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gfrnn.equations import UNITS, Spec, State, Weights
from gfrnn.ops.manual_norm import Normals, places
from gfrnn.ops.manual_units import MATHS, Step
from gfrnn.ops.matrices import Hearing, Together, add_product, has_gates, hearing, product, split_columns, together

ROWS = 1024  # of a block of timesteps, all rows of the minibatch counted: enough for a product, few enough for caches


class Kept(NamedTuple):
    """What a forward leaves for its backward, beside h; None where the unit has none."""

    acts: Sequence[Tensor]  # per block (its timesteps, B, L*C)
    c: Tensor | None  # (T, B, L, H)
    q: Tensor | None  # (T, B, L, H)
    normals: Sequence[Normals]  # per block; none where nothing is normalised


class Heard:
    """Room for what a layer's candidate hears, [h_t^{j-1} | g h*_{t-1}], or for what it sends back there."""

    def __init__(self, spec: Spec, *rows: int, like: Tensor) -> None:
        S = 1 if hearing(spec)[0] else spec.num_layers
        both = like.new_empty(*rows, 1 + S, spec.hidden_size)
        self.up, self.scaled = both[..., 0, :], both[..., 1:, :]
        self.flat, self.flat_scaled = both.flatten(-2), self.scaled.flatten(-2)


def blocks(T: int, B: int) -> list[slice]:
    """The timesteps, some at a time: what is allocated whole for a long sequence comes page by page, and slowly."""
    some = max(1, ROWS // max(1, B))
    return [slice(start, min(start + some, T)) for start in range(0, T, some)]


def forward(
    spec: Spec, weights: Sequence[Weights], x: Tensor, state: State, lengths: Tensor | None, masks: Tensor | None
) -> tuple[Tensor, State, Tensor, Kept]:
    """h (T, B, L, H), the last state, the gates (T, B, L, n), and what the backward needs.

    A row that has ended goes on, with whatever x holds there; its outputs are blanked in the end.
    """
    T, B, H, L = *x.shape[:2], spec.hidden_size, spec.num_layers
    net = together(spec, weights).laid_down(T)
    h = net.bias.new_empty(T, B, L, H)
    c = torch.empty_like(h) if UNITS[spec.unit].has_cell else None
    q = torch.empty_like(h) if MATHS[spec.unit].keeps_q else None
    g = h.new_empty(T, B, L, L if has_gates(spec) else 0)
    feed, acts, normals = Feed(net, x), [], []
    h0, c0 = state.map(lambda part: part.transpose(0, 1))
    for part in blocks(T, B):
        act = feed(x[part])
        past, c_past = one_step_earlier(h, h0, part), None if c is None else one_step_earlier(c, c0, part)
        normals += [Normals.room(spec, act)] if net.scales else []
        its = normals[-1] if normals else None
        through_block(spec, net, act, past, c_past, h[part], of(c, part), of(q, part), of(masks, part), its)
        g[part] = split_columns(act, spec)[1][..., act.shape[2] // L - H - g.shape[3] :]
        acts.append(act)
    last = State(h, c).map(lambda part: last_of(part, lengths))
    if lengths is not None:
        for output in (h, g):
            output.masked_fill_(after_end(T, lengths), 0.0)
    return h, last, g, Kept(acts, c, q, normals)


def through_block(
    spec: Spec,
    net: Together,
    act: Tensor,
    past: Sequence[Tensor],
    c_past: Sequence[Tensor] | None,
    h: Tensor,
    c: Tensor | None,
    q: Tensor | None,
    masks: Tensor | None,
    normals: Normals | None,
) -> None:
    """Some timesteps, from the bottom layer up: W x_t + b in `act` becomes activations; fills h, c, q and normals."""
    _, B, L, H = h.shape
    maths, gated, own = MATHS[spec.unit], has_gates(spec), hearing(spec)[0]
    candidates, gates = split_columns(act, spec)
    others = {"q": q, "h": h, "c": c, "h_prev": past, "c_prev": c_past}
    layers = [
        steps(spec, candidates[:, :, j], gates[:, :, j], **{name: layer(rows, j) for name, rows in others.items()})
        for j in range(L)
    ]
    its_gates, hearings = layers_gates(spec, gates), [hears(group, act[..., L * H :]) for group in net.hearing]
    heard = Heard(spec, B, like=act)
    of_gates = [(group.sources, group.U.T) for group in net.hearing]  # taking a view costs as much as a small product
    candidate_factors, below_factors = [m.T for m in net.candidate], [m.T for m in net.below]
    normalised = None if normals is None else places(spec, net.scales, normals, act, act)
    for t, h_prev in enumerate(past):
        h_star = h_prev.flatten(1)
        for (its_sources, factor), its in zip(of_gates, hearings, strict=True):
            add_product(h_star[:, its_sources], factor, its[t])
        for j in range(L):
            step, (gates_j, g) = layers[j][t], its_gates[j][t]
            if j:
                below = layers[j - 1][t].h
                heard.up.copy_(below) if masks is None else torch.mul(below, masks[t, :, j - 1], out=heard.up)
                add_product(heard.up, below_factors[j], gates_j)
            candidate, units = (None, None) if normalised is None else normalised[j][t]
            if units is not None:
                units.settle()
            gates_j.sigmoid_()
            if gated:
                torch.mul(h_prev, g, out=heard.scaled)
            else:
                heard.scaled.copy_(step.h_prev[:, None] if own else h_prev)
            if not maths.keeps_q:
                add_product(heard.flat if j else heard.flat_scaled, candidate_factors[j], step.candidate)
            else:
                product(heard.flat_scaled, net.U(j).T, out=step.q)
                if j:
                    add_product(heard.up, net.W_h(j).T, step.candidate)
            maths.forward(step, nothing if candidate is None else candidate.settle)


def nothing() -> None:
    """What is done to the candidate's pre-activations where nothing is normalised."""


def after_end(T: int, lengths: Tensor) -> Tensor:
    """(T, B, 1, 1): where a row has ended."""
    return (torch.arange(T, device=lengths.device)[:, None] >= lengths)[..., None, None]


def last_of(values: Tensor, lengths: Tensor | None) -> Tensor:
    """The last of each row of (T, B, L, H), as a state has it: (L, B, H)."""
    last = values[-1] if lengths is None else values[lengths - 1, torch.arange(len(lengths), device=lengths.device)]
    return last.transpose(0, 1).clone(memory_format=torch.contiguous_format)


def one_step_earlier(values: Tensor, first: Any, part: slice) -> list[Tensor]:
    """Those (B, L, H) of the timesteps before `part`; before all of them there is `first`."""
    earlier = values[max(0, part.start - 1) : part.stop - 1].unbind(0)
    return [*earlier] if part.start else [first, *earlier]


def of(tensor: Tensor | None, part: slice) -> Tensor | None:
    """Some timesteps."""
    return None if tensor is None else tensor[part]


def layer(values: Tensor | Sequence[Tensor] | None, j: int) -> Sequence[Tensor] | None:
    """Layer j of every timestep."""
    if values is None:
        return None
    return values[:, :, j].unbind(0) if isinstance(values, Tensor) else [value[:, j] for value in values]


class Feed:
    """W x_t + b of all layers and some timesteps at once: (timesteps, B, L*C)."""

    def __init__(self, net: Together, x: Tensor) -> None:
        self.net, self.bias = net, torch.cat([net.bias[columns] for columns in net.fed])
        self.table = None
        if not x.is_floating_point():  # of every index
            self.table = torch.add(net.x.T, self.bias, out=net.x.new_empty(net.x.shape[::-1]))

    def __call__(self, x: Tensor) -> Tensor:
        net, width = self.net, self.net.x.shape[0]
        act = net.bias.new_empty(*x.shape[:2], net.bias.shape[0])
        fed = act if width == act.shape[2] else act.new_empty(*x.shape[:2], width)
        rows = fed.flatten(0, 1)
        if self.table is None:
            add_product(x.flatten(0, 1), net.x.T, rows.copy_(self.bias.expand_as(rows)))
        else:
            torch.index_select(self.table, 0, x.flatten(), out=rows)
        if fed is not act:
            act.copy_(net.bias.expand_as(act))
            widths = [columns.stop - columns.start for columns in net.fed]
            for part, columns in zip(fed.split(widths, dim=2), net.fed, strict=True):
                act[..., columns] = part
        return act


def steps(spec: Spec, candidate: Tensor, gates: Tensor, **others: Tensor | Sequence[Tensor] | None) -> list[Step]:
    """Every timestep of what begins with T: of one layer (T, B, columns) or of all (T, B, L, columns)."""
    H, G = spec.hidden_size, len(UNITS[spec.unit].gates)
    units = [gates[..., k * H : (k + 1) * H].unbind(0) for k in range(G - 1)]
    per_step = {name: rows for name, rows in others.items() if rows is not None}
    return [
        Step(row, tuple(unit[t] for unit in units), **{name: rows[t] for name, rows in per_step.items()})
        for t, row in enumerate(candidate.unbind(0))
    ]


def layers_gates(spec: Spec, gates: Tensor) -> list[list[tuple[Tensor, Tensor]]]:
    """Of every layer and timestep all gates (B, K), and the global reset gates (B, n, 1) among them."""
    units = (len(UNITS[spec.unit].gates) - 1) * spec.hidden_size
    return [list(zip(row.unbind(0), row[..., units:, None].unbind(0), strict=True)) for row in gates.unbind(2)]


def hears(group: Hearing, every_gate: Tensor) -> Sequence[Tensor]:
    """The gates of one group in every timestep."""
    return every_gate[..., group.gates].unbind(0)
