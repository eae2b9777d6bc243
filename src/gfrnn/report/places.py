"""Where in the test text gated feedback gains on the stack, or loses: stretch by stretch, from the blocks runs keep.

A mean over five million characters can be the work of one odd page. What is said here describes; it decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gfrnn.report.document import Table
from gfrnn.report.evidence import Evidence
from gfrnn.report.finished import Group
from gfrnn.report.statistics import merged
from gfrnn.report.wording import UNITS, group_words
from gfrnn.tasks.text.score import BLOCK

TOGETHER = 100  # blocks of a stretch
STRETCH = TOGETHER * BLOCK  # its characters


@dataclass(frozen=True)
class Places:
    """What gated feedback gains on the stack of one unit in each stretch of the test split, of one group of runs."""

    unit: str
    group: Group
    bits: dict[int, np.ndarray]  # by seed: bits that the stack needs more in each stretch
    sizes: np.ndarray  # characters of each stretch

    @property
    def by_seed(self) -> dict[int, np.ndarray]:
        """Gains in bits per character."""
        return {seed: bits / self.sizes for seed, bits in self.bits.items()}

    @property
    def gains(self) -> np.ndarray:
        """Of each stretch, mean of the seeds."""
        return np.asarray(np.mean(list(self.by_seed.values()), axis=0))

    @property
    def oddest(self) -> int:
        """The stretch that is farthest from the median one, on average over the seeds."""
        middle = np.median(self.gains)
        return int(np.mean([np.abs(gains - middle) for gains in self.by_seed.values()], axis=0).argmax())

    def total(self, without: int | None = None) -> list[float]:
        """The gain of each seed in the whole split, or in what is left of it without one stretch."""
        left = np.arange(len(self.sizes)) != without
        return [float(bits[left].sum() / self.sizes[left].sum()) for bits in self.bits.values()]


def places(evidence: Evidence) -> list[Places]:
    """Of every group and unit in which some seed of both rows keeps the blocks of the same test split."""
    found = []
    for group in evidence.groups:
        for unit in reversed(UNITS):
            gated, stacked = (evidence.of(f"{kind}-{unit}", group) for kind in ("gated", "stacked"))
            bits, sizes = {}, None
            for seed in sorted(gated.keys() & stacked.keys()):
                ours, theirs = gated[seed].blocks, stacked[seed].blocks
                if ours is None or theirs is None or len(ours.bits) <= TOGETHER:
                    continue
                theirs.comparable(ours)
                bits[seed] = merged(theirs.bits - ours.bits, TOGETHER)
                sizes = merged(ours.sizes, TOGETHER)
            if sizes is not None:
                found.append(Places(unit, group, bits, sizes))
    return found


def table(found: list[Places]) -> Table:
    rows = []
    for one in found:
        odd, seeds = one.oddest, len(one.bits)
        rows.append(
            [
                UNITS[one.unit],
                f"{group_words(one.group)} ({'one seed' if seeds == 1 else f'{seeds} seeds'})",
                spread(one.total()),
                f"{np.median(one.gains):+.4f}",
                f"{(one.gains > 0).sum()} of {len(one.gains)}",
                f"{odd * STRETCH / 1e6:.1f} M: {spread([float(g[odd]) for g in one.by_seed.values()])}",
                spread(one.total(without=odd)),
            ]
        )
    header = ["unit", "settings and budget", "gain", "in the median", "ahead in", "the oddest", "gain without it"]
    return Table(
        f"What gated feedback gains on the stack along the test split, in bits per character: in all, in the median of "
        f"stretches of {STRETCH:,} characters, in how many of them it is ahead, and in the one that is farthest from "
        "the median. Means of the seeds, in brackets the lowest and the highest; no claim is decided by it.",
        header,
        ["text", "text", *["number"] * 5],  # type: ignore[list-item]
        rows,
    )


def spread(gains: list[float]) -> str:
    """
    >>> spread([-0.01, 0.03]), spread([0.02])
    ('+0.0100 (-0.0100 to +0.0300)', '+0.0200')
    """
    mean = f"{sum(gains) / len(gains):+.4f}"
    return f"{mean} ({min(gains):+.4f} to {max(gains):+.4f})" if len(gains) > 1 else mean
