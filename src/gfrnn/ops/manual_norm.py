"""Normalised pre-activations in place, for manual_forward.py and manual_backward.py; README.md has the derivation."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gfrnn.equations import EPSILON, UNITS, Scale, Spec
from gfrnn.ops.matrices import split_columns


class Normals(NamedTuple):
    """What a forward keeps of some timesteps: n = a s, and s."""

    n: Tensor  # (timesteps, B, L*C); the columns of the global reset gates hold nothing
    s: Tensor  # (timesteps, B, L, G, 1), of the candidate first

    @classmethod
    def room(cls, spec: Spec, act: Tensor) -> "Normals":
        shape = (*act.shape[:2], spec.num_layers, len(UNITS[spec.unit].gates), 1)
        return cls(torch.empty_like(act), act.new_empty(shape))


class Place(NamedTuple):
    """One layer's candidate (B, H) or unit-wise gates (B, G-1, H) in one timestep."""

    values: Tensor  # forwards a, which becomes gain n + b; backwards the gradient of the latter
    n: Tensor
    s: Tensor
    gain: Tensor
    b: Tensor
    back: Tensor  # where the gradient of a belongs

    def settle(self) -> None:
        torch.mean(self.values.square(), -1, keepdim=True, out=self.s)
        torch.mul(self.values, self.s.add_(EPSILON).rsqrt_(), out=self.n)
        torch.addcmul(self.b, self.n, self.gain, out=self.values)

    def unsettle(self, settled: Tensor) -> Tensor:
        """The gradient of a, from that of what became of it."""
        d = settled * self.gain
        shared = torch.mean(self.n * d, -1, keepdim=True)
        return torch.addcmul(d, self.n, shared, value=-1, out=self.back).mul_(self.s)


Places = list[list[tuple[Place, Place | None]]]  # per layer and timestep: the candidate, and gates if the unit has any


def places(spec: Spec, scales: Sequence[tuple[Scale, Scale]], normals: Normals, values: Tensor, back: Tensor) -> Places:
    """Of every layer and timestep of `values` and `back` (timesteps, B, L*C)."""
    H, units = spec.hidden_size, len(UNITS[spec.unit].gates) - 1
    columns = [split_columns(rows, spec) for rows in (values, normals.n, back)]
    found: Places = []
    for j, (of_candidate, of_units) in enumerate(scales):
        s, gates = normals.s[:, :, j], [rows[:, :, j, : units * H] for _, rows in columns]
        candidates = each_step(of_candidate, s[:, :, 0], *(rows[:, :, j] for rows, _ in columns))
        if units:
            others = each_step(of_units, s[:, :, 1:], *(rows.unflatten(-1, (units, H)) for rows in gates))
            found.append(list(zip(candidates, others, strict=True)))
        else:
            found.append([(place, None) for place in candidates])
    return found


def each_step(scale: Scale, s: Tensor, values: Tensor, n: Tensor, back: Tensor) -> list[Place]:
    """Taking a view costs as much as a small product: all are taken before the time loop."""
    views = zip(values.unbind(0), n.unbind(0), s.unbind(0), back.unbind(0), strict=True)
    b = torch.as_tensor(scale.b)
    return [Place(v, n_t, s_t, scale.gain, b, back_t) for v, n_t, s_t, back_t in views]
