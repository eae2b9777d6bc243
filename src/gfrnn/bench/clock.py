"""Timing competitors in turn, A B C A B C ..., so that whatever the machine does happens to all of them."""

import gc
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

WORK = ("characters", "flops", "bytes")
SAMPLE_SECONDS = 0.25  # a sample repeats its work until it takes about as long: a training repeats its step, too


@dataclass(frozen=True)
class Entry:
    """One competitor: a piece of work, and how much of what it does in one call."""

    name: str
    run: Callable[[], Any]
    characters: int = 0
    flops: float = 0.0  # useful operations
    bytes: float = 0.0  # that must be read
    parameters: int = 0
    series: str = ""  # entries of one series differ in `x` only
    x: float = 0.0


@dataclass(frozen=True)
class Spread:
    """Median and quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """
        >>> Spread.of([3.0, 1.0, 2.0])
        Spread(median=2.0, low=1.5, high=2.5)
        """
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)

    def scaled(self, factor: float) -> "Spread":
        return Spread(self.median * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True)
class Timed:
    """An Entry and the seconds of one call, round by round."""

    name: str
    seconds: list[float]
    characters: int
    flops: float
    bytes: float
    parameters: int
    series: str
    x: float

    def rate(self, by: str) -> Spread:
        """Work per second: by "characters", "flops" or "bytes"."""
        return Spread.of([getattr(self, by) / seconds for seconds in self.seconds])


@dataclass(frozen=True)
class Group:
    """Competitors that took turns: only these may be compared."""

    section: str
    name: str
    timed: dict[str, Timed]
    about: dict[str, Any] = field(default_factory=dict)

    def ratio(self, ours: str, theirs: str, by: str) -> Spread:
        """How many times the rate of `theirs` that of `ours` is, round by round."""
        a, b = self.timed[ours], self.timed[theirs]
        work = getattr(a, by) / getattr(b, by)
        return Spread.of([work * t / o for o, t in zip(a.seconds, b.seconds, strict=True)])

    def exponents(self) -> dict[str, Spread]:
        """Of every series: p in seconds ~ x^p, fitted in every round, over x from about["fit_from"] on."""
        least = self.about.get("fit_from", 0)
        found = {}
        for series in {timed.series: None for timed in self.timed.values() if timed.series}:
            entries = [timed for timed in self.timed.values() if timed.series == series and timed.x >= least]
            if len(entries) > 1:
                rounds = zip(*(timed.seconds for timed in entries), strict=True)
                x = [timed.x for timed in entries]
                found[series] = Spread.of([exponent(x, seconds) for seconds in rounds])
        return found

    def to_mapping(self) -> dict[str, Any]:
        """Everything, raw and summed up; a timing also as a multiple of every yardstick (see `is_yardstick`)."""
        return {
            "section": self.section,
            "name": self.name,
            "about": self.about,
            "exponents": {series: asdict(spread) for series, spread in self.exponents().items()},
            "timed": [self.one_mapping(timed) for timed in self.timed.values()],
        }

    def one_mapping(self, timed: Timed) -> dict[str, Any]:
        over = {}
        for other in self.timed.values():
            if is_yardstick(other.name) and other.name != timed.name:
                by = next((by for by in WORK if getattr(timed, by) and getattr(other, by)), None)
                if by:
                    over[other.name] = {"by": by, **asdict(self.ratio(timed.name, other.name, by))}
        rates = {f"{by}_per_second": asdict(timed.rate(by)) for by in WORK if getattr(timed, by)}
        return {**asdict(timed), "seconds_spread": asdict(Spread.of(timed.seconds)), **rates, "over": over}


def is_yardstick(name: str) -> bool:
    """The loop and torch's layers, and what the machine can do: "sgemm N" (a square) and "read ..."."""
    return name == "loop" or bool(re.match(r"nn\.|sgemm \d+$|read", name))


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope of log y over log x, by least squares.

    >>> round(exponent([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    import numpy as np

    return float(np.polyfit(np.log(np.asarray(x, float)), np.log(np.asarray(y, float)), 1)[0])


def time_in_turn(
    entries: Sequence[Entry],
    repeats: int,
    least_repeats: int,
    group_seconds: float,
    tick: Callable[[int], None] = lambda done: None,
) -> dict[str, Timed]:
    """Every entry once untimed, then `repeats` rounds of all of them, or fewer when `group_seconds` are over."""
    calls = {entry.name: calls_per_sample(entry) for entry in entries}
    seconds: dict[str, list[float]] = {entry.name: [] for entry in entries}
    started = time.perf_counter()
    for done in range(repeats):
        for entry in entries:
            seconds[entry.name].append(sample(entry, calls[entry.name]))
        tick(done + 1)
        if done + 1 >= least_repeats and time.perf_counter() - started > group_seconds:
            break
    return {
        entry.name: Timed(
            entry.name,
            seconds[entry.name],
            entry.characters,
            entry.flops,
            entry.bytes,
            entry.parameters,
            entry.series,
            entry.x,
        )
        for entry in entries
    }


def calls_per_sample(entry: Entry) -> int:
    """How many calls fill a sample. The first call warms up, the second is the one judged by."""
    if sample(entry, 1) >= SAMPLE_SECONDS:
        return 1
    return max(1, round(SAMPLE_SECONDS / max(sample(entry, 1), 1e-6)))


def sample(entry: Entry, calls: int) -> float:
    """Seconds of one call, the garbage collector kept out."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        started = time.perf_counter()
        for _ in range(calls):
            entry.run()
        return (time.perf_counter() - started) / calls
    finally:
        if collecting:
            gc.enable()
