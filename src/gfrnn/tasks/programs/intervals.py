"""Proportions with 95 % intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

Z = 1.959963984540054  # two-sided 95 % of the normal distribution


@dataclass(frozen=True)
class Share:
    """A proportion (or the difference of two) and its interval."""

    value: float
    low: float
    high: float

    @property
    def is_noise(self) -> bool:
        """Whether a difference may well be 0."""
        return self.low <= 0 <= self.high


def wilson(p: float, n: float) -> Share:
    """Wilson's interval of a proportion p seen in n independent trials.

    >>> share = wilson(0.5, 100)
    >>> round(share.low, 4), round(share.high, 4)
    (0.4038, 0.5962)
    """
    middle = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return Share(p, max(0.0, min(p, middle - half)), min(1.0, max(p, middle + half)))


def clustered(right: list[int], trials: list[int]) -> Share:
    """The interval of sum(right) / sum(trials), when the trials of one item are right or wrong together.

    The variance is that of a ratio over items; Wilson's interval is taken at the number of independent trials that
    would have the same variance (at the number of items, where no variance is seen).
    """
    n, total = len(trials), sum(trials)
    p = sum(right) / total
    squares = sum((r - p * t) ** 2 for r, t in zip(right, trials, strict=True))
    variance = squares / total**2 * n / max(1, n - 1)
    effective = min(total, p * (1 - p) / variance) if variance > 0 else n
    return wilson(p, effective)
