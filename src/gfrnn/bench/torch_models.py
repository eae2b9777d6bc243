"""What one would take off the shelf: an embedding, torch.nn.RNN, GRU or LSTM, and a softmax over the last layer."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gfrnn.bench.plan import VOCABULARY
from gfrnn.convert import PAIRS

KINDS: dict[str, Any] = {ours.unit: theirs for theirs, ours in PAIRS.items()}


class TorchLM(nn.Module):
    """A stacked character model as torch has it: no skips, no feedback; torch's own kernels forward and backward.

    >>> model = TorchLM("lstm", num_layers=2, hidden_size=8)
    >>> ids = torch.tensor([[1, 2], [3, 4], [5, 6]])  # (T, B)
    >>> model.loss(ids[:-1], ids[1:]).shape
    torch.Size([])
    """

    def __init__(self, unit: str, num_layers: int, hidden_size: int, symbols: int = VOCABULARY) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, hidden_size)
        self.layer = KINDS[unit](hidden_size, hidden_size, num_layers)
        self.head = nn.Linear(hidden_size, symbols)

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        features, _ = self.layer(self.embedding(ids))
        return F.cross_entropy(self.head(features).flatten(0, 1), targets.flatten())

    @torch.inference_mode()
    def generate(self, prompt: Tensor, max_new: int) -> Tensor:
        """The `max_new` symbols after `prompt` (T,), one at a time."""
        features, state = self.layer(self.embedding(prompt[:, None]))
        drawn = []
        for _ in range(max_new):
            symbol = torch.multinomial(torch.softmax(self.head(features[-1]), dim=1), 1)
            drawn.append(symbol)
            features, state = self.layer(self.embedding(symbol), state)
        return torch.cat(drawn).flatten()
