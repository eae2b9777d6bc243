"""The gradients of the weights, after (a block of) the time loop of manual_backward.py: sums over all (t, b)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gfrnn.equations import UNITS, Spec
from gfrnn.ops.manual_forward import Heard
from gfrnn.ops.manual_norm import Normals
from gfrnn.ops.matrices import (
    Together,
    add_product,
    candidate_back,
    has_gates,
    hearing,
    layer_columns,
    split_columns,
)


class Sums:
    """In the order of our columns and in the shape of `net`; `of_weights` brings them into that of the parameters."""

    def __init__(self, spec: Spec, net: Together, x: Tensor) -> None:
        self.spec, self.net = spec, net
        self.by_index = not x.is_floating_point()  # then x has one row for each index, as one adds to them
        self.x = torch.zeros_like(net.x.T if self.by_index else net.x, memory_format=torch.contiguous_format)
        self.bias, self.gain = torch.zeros_like(net.bias), torch.zeros_like(net.bias)
        self.hearing = [torch.zeros_like(group.U) for group in net.hearing]
        self.candidate = [torch.zeros_like(rows) for rows in net.candidate]
        self.below = [torch.zeros_like(rows) for rows in net.below]

    def of_fed(self, delta: Tensor) -> Tensor:
        """The columns that x_t reaches: (timesteps * B, columns)."""
        parts = [delta.flatten(0, 1)[:, columns] for columns in self.net.fed]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def add(
        self,
        x: Tensor,
        past: Sequence[Tensor],
        h: Tensor,
        masks: Tensor | None,
        act: Tensor,
        delta: Tensor,
        dq: Tensor | None,
    ) -> None:
        """Some timesteps more: of past each h_{t-1} (B, L, H), delta (timesteps, B, L*C), dq of the gated sums."""
        before = torch.stack(list(past))
        spec, (T, B, L, H) = self.spec, h.shape
        own, gated = hearing(spec)[0], has_gates(spec)
        (d_candidates, d_gates), (_, gates) = split_columns(delta.flatten(0, 1), spec), split_columns(act, spec)
        fed, every_gate, h_star = self.of_fed(delta), d_gates.flatten(1), before.view(T * B, L * H)
        if self.by_index:
            self.x.index_add_(0, x.flatten(), fed)
        else:
            add_product(fed.T, x.flatten(0, 1), self.x)
        for total, group in zip(self.hearing, self.net.hearing, strict=True):
            add_product(every_gate[:, group.gates].T, h_star[:, group.sources], total)
        heard = Heard(spec, T, B, like=h)
        rows, up_rows, scaled_rows = (part.flatten(0, 1) for part in (heard.flat, heard.up, heard.flat_scaled))
        for j in range(L):
            if j:
                up = h[:, :, j - 1]
                heard.up.copy_(up) if masks is None else torch.mul(up, masks[:, :, j - 1], out=heard.up)
                add_product(d_gates[:, j].T, up_rows, self.below[j])
            if gated:
                torch.mul(before, gates[:, :, j, gates.shape[-1] - L :, None], out=heard.scaled)
            else:
                heard.scaled.copy_(before[:, :, j : j + 1] if own else before)
            if dq is None:
                add_product(d_candidates[:, j].T, rows if j else scaled_rows, self.candidate[j])
            else:
                add_product(dq.flatten(0, 1)[:, j].T, scaled_rows, self.candidate[j][:, H if j else 0 :])
                if j:
                    add_product(d_candidates[:, j].T, up_rows, self.candidate[j][:, :H])

    def add_settled(self, delta: Tensor, settled: Tensor, normals: Normals | None) -> None:
        """Of the biases and gains, which come after the sums of products."""
        if normals is not None:
            (_, of_settled), (_, of_sums) = split_columns(settled, self.spec), split_columns(delta, self.spec)
            units = (len(UNITS[self.spec.unit].gates) - 1) * self.spec.hidden_size
            of_settled[..., units:] = of_sums[..., units:]  # the global reset gates', which are not normalised
            self.gain += (settled * normals.n).sum((0, 1))
        self.bias += settled.sum((0, 1))

    def of_weights(self, has_bias: bool) -> list[Tensor | None]:
        """Every field of each layer's Weights."""
        spec, unit, H, L = self.spec, UNITS[self.spec.unit], self.spec.hidden_size, self.spec.num_layers
        gated, K = has_gates(spec), layer_columns(spec) - H
        units, (own, apart) = K - (L if gated else 0), hearing(spec)
        of_x = self.x.T if self.by_index else self.x
        of_U = list(self.hearing[0].chunk(L)) if not (own or apart) else self.hearing
        fed = of_x.shape[0] // (H + K)
        found: list[Tensor | None] = []
        for j in range(L):
            candidate, gates = [], []
            if j < fed:
                candidate.append(of_x[j * H : (j + 1) * H])
                gates.append(of_x[fed * H + j * K : fed * H + (j + 1) * K])
            if j:
                candidate.append(self.candidate[j][:, :H])
                gates.append(self.below[j])
            U = self.candidate[j][:, H if j else 0 :]
            b, gain = (total[L * H + j * K : L * H + (j + 1) * K] for total in (self.bias, self.gain))
            d_units, u_g = of_U[2 * j : 2 * j + 2] if apart and gated else of_U[j].split([units, K - units])
            found += [
                candidate_back(torch.cat(candidate, 1), torch.cat([rows[:units] for rows in gates], 1), unit),
                d_units if apart else candidate_back(U, d_units, unit),
                U if apart else None,
                candidate_back(self.bias[j * H : (j + 1) * H], b[:units], unit) if has_bias else None,
                torch.cat([rows[units:] for rows in gates], 1) if gated else None,
                u_g if gated else None,
                b[units:] if has_bias and gated else None,
                candidate_back(self.gain[j * H : (j + 1) * H], gain[:units], unit) if self.net.scales else None,
            ]
        return found
