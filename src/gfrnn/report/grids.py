"""Two program models' grids, compared program by program: symbols by a bootstrap, whole answers by McNemar's test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gfrnn.report.evidence import Evidence
from gfrnn.report.finished import Group, Run
from gfrnn.report.statistics import OF_A_CELL, Interval, bootstrap_ratio, mcnemar, percentiles, resampled_sums
from gfrnn.tasks.programs.grid import unpack

LIMIT = 0.05
Place = tuple[int, int]  # nesting, length
Pair = tuple[Run, Run]


@dataclass(frozen=True)
class Answers:
    """Cell by cell: answers that only the first model has right, only the second, and McNemar's p."""

    cells: dict[Place, tuple[int, int, float]]

    def counts(self) -> tuple[int, int]:
        """Cells in which the first model is better, and worse, beyond chance."""
        beyond = [(first, second) for first, second, p in self.cells.values() if p < LIMIT]
        return sum(a > b for a, b in beyond), sum(a < b for a, b in beyond)


def pairs(better: str, worse: str, evidence: Evidence, group: Group) -> list[Pair]:
    """Of every seed that both have a grid of."""
    a, b = evidence.of(better, group), evidence.of(worse, group)
    return [(a[s], b[s]) for s in sorted(a.keys() & b.keys()) if a[s].grid and b[s].grid]


def counts(run: Run) -> dict[Place, tuple[np.ndarray, np.ndarray]]:
    """Cell -> (symbols right, symbols) of every program."""
    assert run.grid is not None
    return {
        (cell["nesting"], cell["length"]): (
            np.array(unpack(cell["right_symbols"])),
            np.array(unpack(cell["target_symbols"])),
        )
        for cell in run.grid["cells"]
    }


def gains(found: list[Pair]) -> dict[Place, tuple[np.ndarray, np.ndarray]]:
    """Cell -> (symbols more right, symbols), program by program; all seeds of one program together."""
    total: dict[Place, tuple[np.ndarray, np.ndarray]] = {}
    for better, worse in found:
        others = counts(worse)
        for place, (right, symbols) in counts(better).items():
            gain, size = total.get(place, (0, 0))
            total[place] = gain + right - others[place][0], size + symbols
    return total


def intervals(found: dict[Place, tuple[np.ndarray, np.ndarray]]) -> dict[Place, Interval]:
    """Of the gain in every cell."""
    return {place: bootstrap_ratio(*gain, resamples=OF_A_CELL) for place, gain in found.items()}


def along(found: dict[Place, tuple[np.ndarray, np.ndarray]], axis: int) -> list[tuple[int, Interval]]:
    """The gain at each nesting (axis 0) or length (1), all cells of it together."""
    levels = sorted({place[axis] for place in found})
    cells = {level: [gain for place, gain in found.items() if place[axis] == level] for level in levels}
    together = {level: [np.concatenate(parts) for parts in zip(*cells[level], strict=True)] for level in levels}
    return [(level, bootstrap_ratio(more, symbols, resamples=OF_A_CELL)) for level, (more, symbols) in together.items()]


def whole_answers(better: Run, worse: Run) -> Answers:
    others = counts(worse)
    cells = {}
    for place, (right, symbols) in counts(better).items():
        first, second = right == symbols, others[place][0] == symbols
        only = int((first & ~second).sum()), int((second & ~first).sum())
        cells[place] = (*only, mcnemar(*only))
    return Answers(cells)


def slope(found: dict[Place, tuple[np.ndarray, np.ndarray]], axis: int) -> Interval:
    """Of the straight line through the gain at each nesting (axis 0) or length (1), programs drawn cell by cell."""
    generator = np.random.default_rng(0)
    levels = sorted({place[axis] for place in found})
    shape = (OF_A_CELL + 1, len(levels), 2)  # the first is what was measured
    sums = np.zeros(shape)
    for place, items in found.items():
        rows = np.stack(items, axis=1).astype(np.float64)
        sums[0, levels.index(place[axis])] += rows.sum(0)
        sums[1:, levels.index(place[axis])] += resampled_sums(rows, OF_A_CELL, generator)
    slopes = np.polyfit(np.array(levels, dtype=float), (sums[..., 0] / sums[..., 1]).T, 1)[0]
    return percentiles(float(slopes[0]), slopes[1:], sum(len(gain) for gain, _ in found.values()))
