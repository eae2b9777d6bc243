"""Every comparison that the paper makes in bits per character, as each group of runs has it: how much, and how sure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from gfrnn.campaign.plan import recipe_of
from gfrnn.report.claims import Claim
from gfrnn.report.evidence import Evidence
from gfrnn.report.finished import Group
from gfrnn.report.rules import between_seeds, of_the_text
from gfrnn.report.statistics import Interval, mean_interval

Noise = Literal["seeds", "text", "validation"]  # what its interval is of; validation: no test score, no interval


@dataclass(frozen=True)
class Gain:
    """By how many bits per character one row is better than another in a group of runs, and from how many seeds."""

    group: Group
    value: float
    noise: Noise
    seeds: int
    interval: Interval | None = None

    @property
    def decided(self) -> bool:
        """As claims.yaml has it: only the noise between seeds decides."""
        return self.noise == "seeds" and self.interval is not None and self.interval.excludes_zero


@dataclass(frozen=True)
class Comparison:
    """Two rows, of which the paper has `better` ahead by `paper` (None: where it prints no number)."""

    better: str
    worse: str
    paper: float | None
    gains: tuple[Gain, ...]


def comparisons(claims: Iterable[Claim], evidence: Evidence) -> list[Comparison]:
    """Those that some run says something of, in the order of the claims."""
    pairs = dict.fromkeys(pair for claim in claims for pair in pairs_of(claim))
    found = []
    for better, worse in pairs:
        gains = tuple(gain for group in evidence.groups if (gain := gain_of(better, worse, evidence, group)))
        if gains:
            found.append(Comparison(better, worse, printed(better, worse), gains))
    return found


def pairs_of(claim: Claim) -> Iterator[tuple[str, str]]:
    """(better, worse) of a claim about bits per character."""
    if claim.test == "chain":
        yield from ((better, worse) for worse, better in itertools.pairwise(claim.rows))
    elif claim.test == "lower":
        better, worse = claim.rows
        yield better, worse


def printed(better: str, worse: str) -> float | None:
    """The paper's own gain, of its Table 2."""
    a, b = (recipe_of(row, "paper").paper for row in (better, worse))
    return None if a is None or b is None else b - a


def gain_of(better_row: str, worse_row: str, evidence: Evidence, group: Group) -> Gain | None:
    """Of the test split, paired by seed; where that was not scored, of the whole validation split."""
    better, worse = evidence.of(better_row, group), evidence.of(worse_row, group)
    seeds, gains = between_seeds(better, worse)
    if len(seeds) > 1:
        interval = mean_interval(gains)
        return Gain(group, sum(gains) / len(gains), "seeds", len(seeds), interval)
    if seeds:
        return Gain(group, gains[0], "text", 1, of_the_text(better[seeds[0]], worse[seeds[0]]))
    scores = [(better[seed].valid_bpc, worse[seed].valid_bpc) for seed in sorted(better.keys() & worse.keys())]
    valid = [b - a for a, b in scores if a is not None and b is not None]
    return Gain(group, sum(valid) / len(valid), "validation", len(valid)) if valid else None
