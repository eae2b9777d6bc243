"""Two directions by two layers: one reads forwards, one backwards, and each is a gated-feedback network of its own.

A layer refuses bidirectional=True, because its feedback goes from step to step in one direction; two layers do what
nn.LSTM's two directions do (one layer deep), with outputs side by side.
"""

import torch
from torch import Tensor, nn

from gfrnn import GFLSTM


def reverse(x: Tensor, lengths: Tensor) -> Tensor:
    """Every row (T, B, ...) backwards from its own end; what lies beyond stays."""
    places = torch.arange(len(x))[:, None]
    back = torch.where(places < lengths, lengths - 1 - places, places)
    return x.gather(0, back.view(*back.shape, *(1,) * (x.dim() - 2)).expand(x.shape))


class TwoDirections(nn.Module):
    def __init__(self, input_size: int, hidden_size: int, num_layers: int) -> None:
        super().__init__()
        self.forwards = GFLSTM(input_size, hidden_size, num_layers)
        self.backwards = GFLSTM(input_size, hidden_size, num_layers)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x (T, B, I), lengths (B,) -> (T, B, 2 * H): at every step what came before it, and what comes after."""
        before, _ = self.forwards(x, lengths=lengths)
        after, _ = self.backwards(reverse(x, lengths), lengths=lengths)
        return torch.cat([before, reverse(after, lengths)], dim=2)


def main() -> Tensor:
    torch.manual_seed(0)
    return TwoDirections(5, 8, num_layers=2)(torch.randn(7, 3, 5), torch.tensor([7, 4, 1]))


if __name__ == "__main__":
    print(main().shape)
