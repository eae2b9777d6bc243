"""Forecasting a real signal: the EEG recording that comes with matplotlib (800 samples of 4 channels).

The next sample of every channel from those before it, beside two forecasts that know nothing: the last sample again,
and the straight line through the last two.
"""

import sys

import matplotlib.cbook
import numpy as np
import torch
from torch import Tensor, nn

from gfrnn import GFGRU


def recording() -> Tensor:
    """(T, 4), each channel with mean 0 and deviation 1 over the part that is learnt from."""
    with matplotlib.cbook.get_sample_data("eeg.dat") as file:
        signal = torch.from_numpy(np.frombuffer(file.read(), dtype=np.float64).reshape(800, 4).copy()).float()
    learnt = signal[:500]
    return (signal - learnt.mean(0)) / learnt.std(0)


class Forecaster(nn.Module):
    """The change that comes next, from all that came before."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = GFGRU(8, 24, num_layers=2)
        self.head = nn.Linear(24, 4)

    def forward(self, signal: Tensor) -> Tensor:
        """(T, B, 4) -> the forecast of each next sample (T, B, 4)."""
        change = torch.diff(signal, dim=0, prepend=signal[:1])
        output, _ = self.layer(torch.cat([signal, change], dim=2))
        return signal + self.head(output)


def error(model: Forecaster, signal: Tensor, first: int) -> float:
    """Mean squared error of the forecasts from sample `first` on."""
    with torch.no_grad():
        return nn.functional.mse_loss(model(signal[:-1, None])[first - 1 :, 0], signal[first:]).item()


def main(updates: int = 300) -> dict[str, float]:
    """Learns from the first 500 samples, stops where the next 100 are forecast best, is measured by the last 200."""
    torch.manual_seed(0)
    signal, model, kept = recording(), Forecaster(), (float("inf"), float("inf"))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for update in range(updates):
        starts = torch.randint(0, 500 - 61, (32,))
        windows = torch.stack([signal[i : i + 61] for i in starts.tolist()], dim=1)
        loss = nn.functional.mse_loss(model(windows[:-1]), windows[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 10 == 9:
            kept = min(kept, (error(model, signal[:600], 500), error(model, signal, 600)))
    truth, last, before = signal[600:], signal[599:-1], signal[598:-2]
    know_nothing = {"the last sample again": last, "a straight line": 2 * last - before}
    return {name: nn.functional.mse_loss(one, truth).item() for name, one in know_nothing.items()} | {"GFGRU": kept[1]}


if __name__ == "__main__":
    for name, found in main(*map(int, sys.argv[1:])).items():
        print(f"{name:<22} mean squared error {found:.4f}")
