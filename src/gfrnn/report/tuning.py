"""What a search for settings found: bits per character of the whole validation split, recipe by setting.

Differences are from the best setting of the same recipe, paired by seed; an interval needs two seeds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gfrnn.campaign.runs import RunState
from gfrnn.campaign.trials import Search, Setting
from gfrnn.errors import GfrnnError
from gfrnn.report.statistics import Interval, mean_interval
from gfrnn.training.runlog import read_metrics

WORST = 8.0  # bits: what a byte costs a model that knows nothing


@dataclass(frozen=True)
class Cell:
    """A recipe with a setting: what its seeds came to, and how far those are that came to nothing yet."""

    row: str
    setting: Setting
    values: Mapping[int, float]  # seed -> BPC
    diverged: Sequence[int]  # seeds
    unfinished: Mapping[int, str]  # seed -> state
    difference: Interval | None = None  # from the best; of one seed it has no width
    is_best: bool = False
    is_edge: bool = False

    @property
    def mean(self) -> float | None:
        return math.fsum(self.values.values()) / len(self.values) if self.values else None

    def words(self, strong: str = "") -> str:
        """In a table; `strong` is put around the best, which is called so without.

        >>> cell = Cell("gated", Setting("usual", {}), {1: 2.0, 2: 2.1}, [], {3: "missing"})
        >>> cell.words()
        '2.050 (2 of 3 seeds)'
        """
        if self.mean is None:
            counts = Counter([*self.unfinished.values(), *["diverged"] * len(self.diverged)])
            return ", ".join(counts)
        mark = strong if self.is_best else ""
        parts = [f"{mark}{self.mean:.3f}{mark}"]
        if self.is_best:
            parts += [", ".join(["best"] * (not strong) + ["at the edge"] * self.is_edge)]
        elif self.difference is not None:
            parts.append(signed(self.difference))
        seeds = len(self.values) + len(self.diverged) + len(self.unfinished)
        if self.diverged:
            parts.append(f"({len(self.diverged)} of {seeds} seeds diverged)")
        elif self.unfinished:
            parts.append(f"({len(self.values)} of {seeds} seeds)")
        return " ".join(filter(None, parts))

    def as_json(self) -> dict[str, Any]:
        between = self.difference
        wide = between is not None and between.count > 1
        return {
            "recipe": self.row,
            "setting": self.setting.name,
            "options": dict(self.setting.options),
            "bpc": self.mean,
            "seeds": {str(seed): value for seed, value in self.values.items()},
            "diverged": list(self.diverged),
            "unfinished": {str(seed): state for seed, state in self.unfinished.items()},
            "difference": between.value if between else None,
            "interval": [between.low, between.high] if between and wide else None,
            "best": self.is_best,
            "at_the_edge": self.is_edge,
        }


def signed(interval: Interval) -> str:
    """
    >>> signed(Interval(0.0142, 0.002, 0.0264, 2)), signed(Interval(0.5, 0.5, 0.5, 1))
    ('+0.014 [+0.002, +0.026]', '+0.500')
    """
    width = f" [{interval.low:+.3f}, {interval.high:+.3f}]" if interval.count > 1 else ""
    return f"{interval.value:+.3f}{width}"


def paired(values: Mapping[int, float], others: Mapping[int, float]) -> Interval | None:
    """values - others, of the seeds that both have."""
    both = [values[seed] - others[seed] for seed in values if seed in others]
    if len(both) == 1:
        return Interval(both[0], both[0], both[0], 1)
    return mean_interval(both)


def valid_bpc(state: RunState) -> float:
    """Of the whole validation split, by the best model of a finished run."""
    history = read_metrics(state.folder)
    final = [record["bpc"] for record in history if record["kind"] == "final"]
    return float(final[-1] if final else min(record["bpc"] for record in history if record["kind"] == "valid"))


def cells(search: Search, states: Mapping[str, RunState]) -> list[Cell]:
    """Of every recipe and setting that the search has; `states` has its runs by name."""
    found = []
    for row in search.rows:
        own = [cell_of(search, states, row, setting) for setting in search.settings if search.at(row, setting.name)]
        found += compared(search, own)
    return found


def cell_of(search: Search, states: Mapping[str, RunState], row: str, setting: Setting) -> Cell:
    values, diverged, unfinished = {}, [], {}
    for trial in search.at(row, setting.name):
        state = states[trial.name]
        bpc = math.inf
        if state.state == "finished":
            try:
                bpc = valid_bpc(state)
            except (GfrnnError, LookupError, TypeError, ValueError):
                unfinished[trial.seed] = "foreign"
                continue
        if state.state not in ("finished", "diverged"):
            unfinished[trial.seed] = state.state
        elif bpc <= WORST:
            values[trial.seed] = bpc
        else:
            diverged.append(trial.seed)
    return Cell(row, setting, values, diverged, unfinished)


def compared(search: Search, row: Sequence[Cell]) -> list[Cell]:
    """The cells of one recipe, with the best among those that have most seeds, and what the others are from it."""
    most = max((len(cell.values) for cell in row if not cell.diverged), default=0)
    able = [cell for cell in row if most and len(cell.values) == most and not cell.diverged]
    best = min(able, key=lambda cell: cell.mean or 0.0, default=None)
    found = []
    for cell in row:
        is_best = cell is best
        difference = None if best is None or is_best else paired(cell.values, best.values)
        edge = is_best and search.is_edge(cell.setting)
        found.append(
            Cell(cell.row, cell.setting, cell.values, cell.diverged, cell.unfinished, difference, is_best, edge)
        )
    return found


def title(search: Search) -> str:
    budgets = ", ".join(dict.fromkeys(trial.budget.spoken for trial in search.trials))
    seeds = f"seed{'s' * (len(search.seeds) > 1)} {', '.join(map(str, search.seeds))}"
    width = ", 95 % t interval over pairs" if len(search.seeds) > 1 else ""
    return f"Validation BPC after {budgets}, {seeds}; difference from the recipe's best{width}"


def summary(found: Sequence[Cell]) -> list[tuple[str, str]]:
    """The best of each recipe, the best of all first: its name, and how far it is from the first."""
    best = sorted((cell for cell in found if cell.is_best), key=lambda cell: cell.mean or 0.0)
    lines = []
    for cell in best:
        apart = paired(cell.values, best[0].values) if cell is not best[0] else None
        words = [f"{cell.mean:.3f}", *([signed(apart)] if apart else []), f"({cell.setting.name})"]
        lines.append((cell.row, " ".join(words)))
    return lines


def lines_of(search: Search, found: Sequence[Cell]) -> list[str]:
    """For a terminal, narrow ones too."""
    lines = [title(search)]
    wide = max(len(cell.setting.name) for cell in found)
    for row, recipe in search.rows.items():
        lines += ["", row if row == recipe else f"{row} ({recipe})"]
        lines += [f"  {cell.setting.name:<{wide}}  {cell.words()}" for cell in found if cell.row == row]
    best = summary(found)
    if len(best) > 1:
        long = max(len(name) for name, _ in best)
        lines += ["", "the best of each"]
        lines += [f"  {name:<{long}}  {words}" for name, words in best]
    return lines


def markdown_of(search: Search, found: Sequence[Cell]) -> str:
    """A table, recipes by settings."""
    names = [setting.name for setting in search.settings]
    by_place = {(cell.row, cell.setting.name): cell.words(strong="**") for cell in found}
    lines = [f"{title(search)}.", ""]
    lines += [f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    lines += [f"| {row} | {' | '.join(by_place.get((row, name), '') for name in names)} |" for row in search.rows]
    best = summary(found)
    if len(best) > 1:
        lines += ["", "The best of each:", ""]
        lines += [f"{place}. {name}: {words}" for place, (name, words) in enumerate(best, start=1)]
    return "\n".join(lines) + "\n"
