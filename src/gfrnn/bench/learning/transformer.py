"""A small causal transformer: it sees the last `context` characters, nothing before. T time, B rows, D width."""

import math
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """Attention to the past, then a network of two layers; each added to what comes in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        q, k, v = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.project(self.norm(x)).chunk(3, 2)
        )
        heard = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heard.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.after(x))))


class Transformer(nn.Module):
    """Embeddings of symbol and place, blocks, softmax.

    >>> import torch
    >>> model, ids = Transformer(205, 8, 2, context=16, heads=2), torch.randint(205, (16, 3))
    >>> model.nats(ids, ids)[0].shape
    torch.Size([16, 3])
    """

    def __init__(self, symbols: int, width: int, layers: int, context: int, heads: int = 4) -> None:
        super().__init__()
        self.context = context
        self.embedding, self.places = nn.Embedding(symbols, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, symbols)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                small = math.sqrt(2 * layers) if name.endswith(("out.weight", "down.weight")) else 1.0
                nn.init.normal_(parameter, std=0.02 / small)

    def nats(self, ids: Tensor, targets: Tensor, state: Any = None) -> tuple[Tensor, None]:
        """Cost in nats of each target (T, B), T up to the context: nothing is carried on."""
        x = self.embedding(ids.t()) + self.places.weight[: len(ids)]
        logits = self.head(self.norm(self.blocks(x)))
        costs = F.cross_entropy(logits.float().flatten(0, 1), targets.t().flatten(), reduction="none")
        return costs.view(targets.t().shape).t(), None
