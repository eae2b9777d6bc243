"""Where a model runs."""

import torch

from gfrnn.errors import UsageError


def find_device(name: str) -> torch.device:
    """The device of this name, if it is there and holds numbers.

    >>> find_device("cpu")
    device(type='cpu')
    >>> find_device("gpu")
    Traceback (most recent call last):
    gfrnn.errors.UsageError: --device gpu: no such kind of device is known (cpu, cuda, cuda:1, mps, xpu ...)
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        kinds = "cpu, cuda, cuda:1, mps, xpu ..."
        raise UsageError(f"--device {name}: no such kind of device is known ({kinds})") from None
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:  # each kind says it in its way
        reason = str(error).strip().split("\n")[0].split(". ")[0]
        raise UsageError(f"--device {name} cannot be used here: {reason}") from None
    return device
