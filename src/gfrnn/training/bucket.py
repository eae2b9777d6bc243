"""Gradients on their way to the other processes."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn


class Bucket:
    """The gradients of some parameters in one piece of memory, to be summed in one message."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = parameters
        self.flat = torch.zeros(sum(p.numel() for p in parameters)).to(parameters[0])
        parts = self.flat.split([p.numel() for p in parameters])
        self.views = [part.view_as(p) for part, p in zip(parts, parameters, strict=True)]
        self.reset()

    def reset(self) -> None:
        self.missing = len(self.parameters)
        self.work: Any = None

    def take(self, place: int) -> None:
        """A parameter's gradient has been made: it lives here from now on."""
        parameter, view = self.parameters[place], self.views[place]
        if parameter.grad is None:
            view.zero_()
        else:
            view.copy_(parameter.grad)
        parameter.grad = view
        self.missing -= 1
