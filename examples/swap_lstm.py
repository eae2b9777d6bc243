"""nn.LSTM in a model, and what takes its place: one import and one line.

The task: remember the first number of a sequence, and say it at the end. The layer starts as the paper's networks did,
with forget gates half open, and needs longer for such a task than nn.LSTM; forget_bias=1 opens them.
"""

import sys

import torch
from torch import Tensor, nn

from gfrnn import GFLSTM


class Model(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.head = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        output, (_h_n, _c_n) = self.layer(x)
        return self.head(output[:, -1]).squeeze(1)


def train(model: Model, updates: int) -> list[float]:
    torch.manual_seed(0)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=1e-2), []
    for _ in range(updates):
        x = torch.randn(64, 12, 1)
        loss = nn.functional.mse_loss(model(x), x[:, 0, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(updates: int = 300) -> dict[str, list[float]]:
    torch.manual_seed(0)
    before = Model(nn.LSTM(1, 16, num_layers=2, batch_first=True))
    after = Model(GFLSTM(1, 16, num_layers=2, batch_first=True, forget_bias=1.0))
    return {"nn.LSTM": train(before, updates), "GFLSTM": train(after, updates)}


if __name__ == "__main__":
    for name, losses in main(*map(int, sys.argv[1:])).items():
        print(f"{name:<8} mean squared error {losses[0]:.3f} -> {losses[-1]:.3f}")
