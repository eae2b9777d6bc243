"""torch.nn.LSTM, as one would take it off the shelf, with the forget bias everybody gives it."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class TorchLSTM(nn.Module):
    """Embedding, torch.nn.LSTM, softmax over the last layer.

    >>> nats, state = TorchLSTM(205, 8, 2).nats(torch.zeros(3, 2, dtype=torch.long), torch.ones(3, 2, dtype=torch.long))
    >>> nats.shape
    torch.Size([3, 2])
    """

    def __init__(self, symbols: int, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.layer = nn.LSTM(width, width, layers)
        self.head = nn.Linear(width, symbols)
        with torch.no_grad():
            for j in range(layers):
                getattr(self.layer, f"bias_ih_l{j}")[width : 2 * width] = 1.0  # the forget gate starts open

    def nats(self, ids: Tensor, targets: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Cost in nats of each target (T, B), and the state to go on from."""
        features, state = self.layer(self.embedding(ids), state)
        costs = F.cross_entropy(self.head(features).float().flatten(0, 1), targets.flatten(), reduction="none")
        return costs.view(targets.shape), state
