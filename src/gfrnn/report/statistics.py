"""Two kinds of noise, kept apart: between seeds (t interval over pairs), and of the test text or programs (bootstrap).

Everything here compares pairs: the same seed, the same block of text, the same program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 10_000
OF_A_CELL = 2000  # resamples, where there are fifty cells


@dataclass(frozen=True)
class Interval:
    """An estimate and its 95 % interval; `count` is what it was made from (seeds, blocks, programs).

    >>> Interval(0.1, 0.02, 0.18, 3).excludes_zero
    True
    """

    value: float
    low: float
    high: float
    count: int

    @property
    def excludes_zero(self) -> bool:
        return not self.low <= 0 <= self.high


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Student's t interval of a mean, e.g. of differences paired by seed; None from fewer than two values.

    >>> interval = mean_interval([1.0, 2.0, 3.0])
    >>> round(interval.low, 3), round(interval.high, 3)
    (-0.484, 4.484)
    """
    n = len(values)
    if n < 2:
        return None
    mean = math.fsum(values) / n
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = t_quantile(0.5 + CONFIDENCE / 2, n - 1) * deviation / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def t_quantile(p: float, degrees: int) -> float:
    """The p-quantile of Student's t for p >= 1/2, by bisection of its distribution function."""
    low, high = 0.0, 2.0
    while t_cdf(high, degrees) < p:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if t_cdf(middle, degrees) < p:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def t_cdf(t: float, degrees: int) -> float:
    """P(T <= t) for t >= 0, by the finite series for a whole number of degrees of freedom."""
    angle = math.atan2(t, math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    if degrees % 2:
        total, term = 0.0, cosine
        for k in range(1, degrees - 1, 2):
            total += term
            term *= cosine**2 * (k + 1) / (k + 2)
        inside = 2 / math.pi * (angle + sine * total)
    else:
        total, term = 0.0, 1.0
        for k in range(0, degrees - 1, 2):
            total += term
            term *= cosine**2 * (k + 1) / (k + 2)
        inside = sine * total
    return 0.5 + inside / 2


def bootstrap_ratio(
    differences: Sequence[float] | np.ndarray,
    sizes: Sequence[float] | np.ndarray,
    seed: int = 0,
    resamples: int | None = None,
) -> Interval:
    """sum(differences) / sum(sizes) with a percentile bootstrap over the items, which are drawn with their pairs.

    Of a text: differences in bits per 50 kB block and the blocks' characters give a difference in BPC. Of programs:
    differences in right symbols and the programs' symbols give a difference in accuracy.
    """
    gained, size = np.asarray(differences, dtype=np.float64), np.asarray(sizes, dtype=np.float64)
    if gained.shape != size.shape or gained.ndim != 1 or len(gained) < 2:
        raise ValueError(f"two or more items with their sizes are needed, got {gained.shape} and {size.shape}")
    sums = resampled_sums(np.stack([gained, size], axis=1), resamples or RESAMPLES, np.random.default_rng(seed))
    return percentiles(float(gained.sum() / size.sum()), sums[:, 0] / sums[:, 1], len(gained))


def bootstrap_rates(a: np.ndarray, b: np.ndarray, seed: int = 0) -> Interval:
    """The rate of a minus that of b, where an item is (hits, chances) of each: of a prompt, tags closed and opened.

    Items are drawn with their pairs. A draw without a chance for one of the two says nothing, and is left out.
    """
    items = np.concatenate([a, b], axis=1).astype(np.float64)
    if len(a) != len(b) or len(items) < 2 or not items[:, 1].sum() or not items[:, 3].sum():
        raise ValueError("two or more items are needed, and a chance for both")

    def difference(sums: np.ndarray) -> np.ndarray:
        return sums[..., 0] / sums[..., 1] - sums[..., 2] / sums[..., 3]

    sums = resampled_sums(items, RESAMPLES, np.random.default_rng(seed))
    sums = sums[(sums[:, 1] > 0) & (sums[:, 3] > 0)]
    return percentiles(float(difference(items.sum(0))), difference(sums), len(items))


def resampled_sums(items: np.ndarray, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """Sums over as many rows as `items` has, drawn with replacement: (resamples, columns).

    Of rows that are equal it only matters how many are drawn, and thousands of programs come in a few kinds.
    """
    kinds, counts = np.unique(items, axis=0, return_counts=True)
    portion = max(1, 5_000_000 // len(kinds))
    parts = [min(portion, resamples - start) for start in range(0, resamples, portion)]
    drawn = (generator.multinomial(len(items), counts / len(items), size) for size in parts)
    return np.concatenate([numbers @ kinds for numbers in drawn])


def percentiles(value: float, found: np.ndarray, count: int) -> Interval:
    low, high = np.quantile(found, [0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2])
    return Interval(value, float(low), float(high), count)


def merged(values: np.ndarray, together: int) -> np.ndarray:
    """Sums of `together` neighbours at a time; the last may be of fewer.

    >>> merged(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 2)
    array([3., 7., 5.])
    """
    return np.add.reduceat(values, np.arange(0, len(values), together))


def mcnemar(only_a: int, only_b: int) -> float:
    """The exact two-sided p-value of McNemar's test: of the items only one of two models has right, who has how many.

    >>> round(mcnemar(2, 10), 4)
    0.0386
    """
    n, fewer = only_a + only_b, min(only_a, only_b)
    if n == 0:
        return 1.0
    # In logarithms: 2**-n is 0 for the thousands of programs of a grid.
    logs = [
        math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - n * math.log(2) for k in range(fewer + 1)
    ]
    return min(1.0, 2 * math.fsum(map(math.exp, logs)))
