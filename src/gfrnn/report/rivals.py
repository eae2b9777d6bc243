"""Learning curves of rows with several seeds: their means, and how far each row is from another, seed by seed.

Seeds read other parts of the text, which moves all rows alike and by more than they differ; paired by seed it cancels.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gfrnn.report.curves import AXES, NAMES, PANEL
from gfrnn.report.finished import Run
from gfrnn.report.pictures import save

Curve = dict[int, float]  # update -> validation
FAINT = 0.35


@dataclass(frozen=True)
class Row:
    """The runs of a row by seed, each with validations in bits per character."""

    label: str
    runs: dict[int, Run]
    look: dict[str, Any]

    def curve(self, seed: int) -> Curve:
        return {record["step"]: record["bpc"] for record in self.runs[seed].validations}

    def characters(self) -> dict[int, float]:
        """Update -> millions of characters, which all seeds have read by then."""
        return {r["step"]: 1e-6 * r["characters"] for run in self.runs.values() for r in run.validations}

    def mean(self, seeds: set[int]) -> Curve:
        """Over these seeds, where all of them were validated."""
        return average([self.curve(seed) for seed in self.runs if seed in seeds])

    def minus(self, other: Row) -> dict[int, Curve]:
        """Seed -> the differences from another row of that seed, where both were validated."""
        pairs = {seed: (self.curve(seed), other.curve(seed)) for seed in sorted(self.runs.keys() & other.runs.keys())}
        return {seed: {step: a[step] - b[step] for step in a if step in b} for seed, (a, b) in pairs.items()}


def average(curves: list[Curve]) -> Curve:
    """
    >>> average([{1: 2.0, 2: 1.0}, {1: 4.0}])
    {1: 3.0}
    """
    steps = [step for step in curves[0] if all(step in curve for curve in curves)] if curves else []
    return {step: sum(curve[step] for curve in curves) / len(curves) for step in steps}


def plot(rows: list[Row], other: Row | None, with_minutes: bool, out: Path) -> list[Path]:
    """Draw OUT.svg and OUT.png: the rows over characters, each minus the `other`, and over minutes if those compare."""
    from matplotlib import pyplot

    several = 1 + (other is not None) + with_minutes
    size = (PANEL[0] * several, PANEL[1] + 0.3)
    figure, panels = pyplot.subplots(1, several, figsize=size, layout="constrained", squeeze=False)
    means, *rest = panels[0]
    shared = set[int].intersection(*(set(row.runs) for row in rows))  # means of other seeds would be of other texts
    for row in rows:
        style, characters = row.look, row.characters()
        for seed in row.runs:
            draw(means, row.curve(seed), characters, color=style["color"], linewidth=0.7, alpha=FAINT)
        (line,) = draw(means, row.mean(shared or set(row.runs)), characters, **style, markersize=4, linewidth=1.6)
        line.set_label(f"{row.label} ({len(row.runs)} {'seed' if len(row.runs) == 1 else 'seeds'})")
        if with_minutes:
            for run in row.runs.values():
                minutes = {r["step"]: AXES["seconds"][1] * r["seconds"] for r in run.validations}
                draw(rest[-1], row.curve(run.seed), minutes, color=style["color"], linewidth=1.0)
        if other is not None:
            draw_difference(rest[0], row, other, style)
    of = (
        "the seeds"
        if all(set(row.runs) == shared for row in rows)
        else f"seed {' and '.join(map(str, sorted(shared)))}"
    )
    means.set_ylabel(f"{NAMES['bpc']}\nmean of {of if shared else 'the seeds'}; thin: each of them")
    means.set_xlabel(AXES["characters"][0])
    if other is not None:
        rest[0].set_ylabel(f"minus {other.label}, seed by seed\nmean, and from the lowest to the highest")
        rest[0].set_xlabel(AXES["characters"][0])
    if with_minutes:
        rest[-1].set_xlabel(AXES["seconds"][0])
    for panel in panels[0]:
        panel.grid(alpha=0.3)
    lines = [line for line in means.get_lines() if not str(line.get_label()).startswith("_")]
    figure.legend(handles=lines, loc="outside lower center", ncols=min(len(lines), 1 + several), frameon=False)
    return save(figure, out)


def draw(panel: Any, curve: Curve, places: dict[int, float], **style: Any) -> Any:
    return panel.plot([places[step] for step in curve], list(curve.values()), **style)


def draw_difference(panel: Any, row: Row, other: Row, style: dict[str, Any]) -> None:
    found = row.minus(other)
    if row is other:
        panel.axhline(0.0, color=style["color"], linestyle=style["linestyle"], linewidth=1.2)
        return
    mean, characters = average(list(found.values())), row.characters()
    draw(panel, mean, characters, **style, markersize=4, linewidth=1.6)
    each = np.array([[curve[step] for step in mean] for curve in found.values()])
    if len(each) > 1:
        x = [characters[step] for step in mean]
        panel.fill_between(x, each.min(0), each.max(0), color=style["color"], alpha=FAINT / 2, linewidth=0)
