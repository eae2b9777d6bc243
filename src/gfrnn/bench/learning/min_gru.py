"""minGRU (Feng et al., 2024): a GRU whose gates do not see the past, between a short convolution and a small network.

    z_t = sigmoid(W_z x_t)        h_t = (1 - z_t) h_{t-1} + z_t W_h x_t

Its steps may be taken in parallel, by a scan over logarithms. Here they are taken one after the other, each a single
`lerp` beside matrix products that take all steps at once anyway: the faster way on a CPU. T time, B rows, D width.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

TAPS = 4  # of the convolution: it sees x_t and three before it


class Block(nn.Module):
    """Convolution in time, minGRU, and a network of two layers; each added to what comes in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.taps = nn.Parameter(torch.randn(TAPS, width) / TAPS)
        self.gates = nn.Linear(width, 2 * width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x (T, B, D); state: h (B, D), and the last inputs of the convolution (TAPS - 1, B, D)."""
        h, before = state
        window = torch.cat([before, self.norm(x)])
        mixed = sum(self.taps[k] * window[k : k + len(x)] for k in range(TAPS))
        gate, candidate = self.gates(mixed).type_as(h).chunk(2, dim=2)  # sums over time are not rounded
        states = []
        for z, new in zip(torch.sigmoid(gate), candidate, strict=True):
            h = torch.lerp(h, new, z)
            states.append(h)
        x = x + torch.stack(states)
        return x + self.down(F.gelu(self.up(self.after(x)))), (h, window[len(x) :])


class MinGRU(nn.Module):
    """Embedding, blocks, softmax.

    >>> model, ids = MinGRU(205, 8, 2), torch.randint(205, (7, 2))
    >>> whole, _ = model.nats(ids, ids)
    >>> first, state = model.nats(ids[:2], ids[:2])
    >>> torch.allclose(model.nats(ids[2:], ids[2:], state)[0], whole[2:], atol=1e-5)
    True
    """

    def __init__(self, symbols: int, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, symbols)

    def nats(self, ids: Tensor, targets: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Cost in nats of each target (T, B), and the state to go on from."""
        x = self.embedding(ids)
        if state is None:
            state = [(x.new_zeros(x.shape[1:]), x.new_zeros(TAPS - 1, *x.shape[1:])) for _ in self.blocks]
        after = []
        for block, own in zip(self.blocks, state, strict=True):
            x, own = block(x, own)
            after.append(own)
        costs = F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), targets.flatten(), reduction="none")
        return costs.view(targets.shape), after
