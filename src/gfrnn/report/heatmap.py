"""The paper's heat maps of program evaluation: stacked, gated, and the difference, one row per unit.

Nesting goes up, length to the right, as in the paper. The colours (cividis; purple to orange through white) are told
apart by colour-blind readers and in print; every cell also holds its number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gfrnn.equations import UNITS, WIRINGS, own_layer
from gfrnn.errors import UsageError
from gfrnn.progress import LOG, Progress
from gfrnn.report.curves import shortest_names
from gfrnn.report.pictures import save
from gfrnn.report.statistics import OF_A_CELL, bootstrap_ratio
from gfrnn.storage.run_folder import GRID, GRID_QUICK, model_inside
from gfrnn.tasks.programs.intervals import Share

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

METRICS = {
    "symbol_accuracy": "target symbols predicted right, the correct ones before given",
    "exact_match": "greedy answers that are right",
}
NOISE = "hatched, in brackets: 0 is within the difference's 95 % interval (noise of the test programs; one run each)"
Cells = dict[tuple[int, int], Share]


@dataclass(frozen=True)
class Row:
    """Two evaluated runs to compare, b against a; `after` says after how many updates, where that is known."""

    title: str
    names: tuple[str, str]
    after: tuple[str, str]
    per_cell: int
    a: Cells
    b: Cells
    gain: Cells


def cells_of(report: dict[str, Any], metric: str) -> Cells:
    """The cells of a grid report (see tasks/programs/grid.py)."""
    return {
        (cell["nesting"], cell["length"]): Share(cell[metric], *cell[f"{metric}_interval"]) for cell in report["cells"]
    }


def gain_of(b: dict[str, Any], a: dict[str, Any], metric: str) -> Cells:
    """b minus a in every cell, compared program by program."""
    from gfrnn.tasks.programs.grid import unpack

    others = {(cell["nesting"], cell["length"]): cell for cell in a["cells"]}
    gains = {}
    for cell in b["cells"]:
        place = cell["nesting"], cell["length"]
        symbols, right, other = (
            np.array(unpack(packed))
            for packed in (cell["target_symbols"], cell["right_symbols"], others[place]["right_symbols"])
        )
        if metric == "exact_match":
            right, other, symbols = (
                (right == symbols).astype(int),
                (other == symbols).astype(int),
                np.ones(len(symbols)),
            )
        gain = bootstrap_ratio(right - other, symbols, resamples=OF_A_CELL)
        gains[place] = Share(gain.value, gain.low, gain.high)
    return gains


def pair(reports: Sequence[tuple[str, dict[str, Any]]], metric: str) -> list[Row]:
    """One row per unit, LSTM first: its two runs, the stacked one first, otherwise in the order given."""
    symbols = {tuple(cell["target_symbols"] for cell in report["cells"]) for _, report in reports}
    if len({report["programs_sha256"] for _, report in reports}) > 1 or len(symbols) > 1:
        raise UsageError("the runs were evaluated on different programs: evaluate all of them again")
    rows = []
    for unit, (first, second) in by_unit([(name, report["model"]["unit"]) for name, report in reports]).items():
        runs = [reports[first], reports[second]]
        runs.sort(key=lambda run: WIRINGS[run[1]["model"]["wiring"]].hears is not own_layer)
        (_, a), (_, b) = runs
        wirings = [report["model"]["wiring"] for _, report in runs]
        names = wirings if len(set(wirings)) == 2 else [name for name, _ in runs]
        after = ["" if r.get("updates") is None else f", after {r['updates']:,} updates" for r in (a, b)]
        values = cells_of(a, metric), cells_of(b, metric), gain_of(b, a, metric)
        rows.append(Row(UNITS[unit].title, (names[0], names[1]), (after[0], after[1]), b["per_cell"], *values))
    return rows


def by_unit(runs: Sequence[tuple[str, str]]) -> dict[str, list[int]]:
    """Of (name, unit) of every run, the places of the two of each unit, LSTM first."""
    if not 2 <= len(runs) <= 2 * len(UNITS):
        raise UsageError(f"a heat map compares two runs of each unit; {len(runs)} given")
    places = {unit: [i for i, run in enumerate(runs) if run[1] == unit] for unit in reversed(UNITS)}
    for unit, found in places.items():
        if len(found) not in (0, 2):
            said = ", ".join(runs[i][0] for i in found)
            raise UsageError(f"a heat map compares two runs of each unit, but of {unit} there are {len(found)}: {said}")
    return {unit: found for unit, found in places.items() if found}


def draw(rows: Sequence[Row], metric: str, stem: Path) -> list[Path]:
    """Writes stem.svg and stem.png."""
    pyplot = drawing()
    shares = [share.value for row in rows for cells in (row.a, row.b) for share in cells.values()]
    lowest = min(shares)
    highest = max(*shares, lowest + 0.01)  # a scale of no width would colour equal maps differently
    most = max(0.01, *(abs(share.value) for row in rows for share in row.gain.values()))
    settings: Any = {"font.size": 9, "hatch.linewidth": 0.6}
    with pyplot.rc_context(settings):
        figure, axes = pyplot.subplots(
            len(rows), 3, figsize=(15.5, 0.9 + 2.75 * len(rows)), squeeze=False, layout="constrained"
        )
        for row, (left, middle, right) in zip(rows, axes, strict=True):
            scale = {"cmap": "cividis", "vmin": lowest, "vmax": highest}
            image(left, row.a, f"{row.title}, {row.names[0]}{row.after[0]}", _percent, scale)
            accuracy = image(middle, row.b, f"{row.title}, {row.names[1]}{row.after[1]}", _percent, scale)
            figure.colorbar(accuracy, ax=[left, middle], label="%", format=_percent_tick, pad=0.01)
            title = f"{row.title}, {row.names[1]} minus {row.names[0]}"
            gain = image(right, row.gain, title, _points, {"cmap": "PuOr_r", "vmin": -most, "vmax": most}, noise=True)
            figure.colorbar(gain, ax=right, label="percentage points", format=_percent_tick, pad=0.02)
        figure.suptitle(f"Program evaluation: {METRICS[metric]} (%); {rows[0].per_cell:,} programs a cell")
        figure.supxlabel(NOISE, fontsize=8)
        return save(figure, stem)


def drawing() -> Any:
    """matplotlib's pyplot, without a window."""
    try:
        import matplotlib
    except ImportError:
        raise UsageError("drawing needs matplotlib: pip install 'gfrnn[report]'") from None
    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot


def image(
    axes: Axes, cells: Cells, title: str, show: Callable[[Share], str], scale: dict[str, Any], noise: bool = False
) -> AxesImage:
    """One map with its numbers; with `noise`, cells that may well be 0 are hatched."""
    from matplotlib.patches import Rectangle

    nestings, lengths = (sorted({place[axis] for place in cells}) for axis in (0, 1))
    values = [[cells[nesting, length].value for length in lengths] for nesting in nestings]
    drawn = axes.imshow(values, origin="lower", aspect="auto", **scale)
    axes.set_xticks(range(len(lengths)), [str(length) for length in lengths])
    axes.set_yticks(range(len(nestings)), [str(nesting) for nesting in nestings])
    axes.set(title=title, xlabel="length", ylabel="nesting")
    for (nesting, length), share in cells.items():
        x, y = lengths.index(length), nestings.index(nesting)
        colour = drawn.to_rgba(np.array(share.value))
        red, green, blue, _ = colour
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        text = show(share)
        if noise and share.is_noise:
            text = f"({text})"
            lines = "0.85" if dark else "0.45"
            corner = (x - 0.5, y - 0.5)
            axes.add_patch(Rectangle(corner, 1, 1, fill=False, hatch="////", edgecolor=lines, linewidth=0))
        box = {"facecolor": colour, "edgecolor": "none", "pad": 0.6}
        axes.text(x, y, text, ha="center", va="center", color="white" if dark else "black", fontsize=8, bbox=box)
    return drawn


def _percent(share: Share) -> str:
    return f"{100 * share.value:.1f}"


def _points(share: Share) -> str:
    return f"{100 * share.value:+.1f}".replace("-0.0", "0.0").replace("+0.0", "0.0")


def _percent_tick(value: float, position: int | None = None) -> str:
    return f"{100 * value:g}"


def describe(rows: Sequence[Row]) -> str:
    """The paper's claim, counted: in how many cells b beats a, and whether the gain grows with nesting and length."""
    lines = []
    for row in rows:
        gain = row.gain
        better = sum(share.low > 0 for share in gain.values())
        worse = sum(share.high < 0 for share in gain.values())
        ends = (min(gain), max(gain))  # the easiest cell and the hardest
        by_nesting = [f"{_mean(gain, 0, nesting):+.2f} at nesting {nesting}" for nesting, _ in ends]
        by_length = [f"{_mean(gain, 1, length):+.2f} at length {length}" for _, length in ends]
        lines.append(
            f"{row.title}: {row.names[1]} is better than {row.names[0]} in {better} of {len(gain)} cells, "
            f"worse in {worse}, within noise in {len(gain) - better - worse}; mean gain in points: "
            f"{', '.join(by_nesting)}; {', '.join(by_length)}"
        )
    return "\n".join(lines)


def _mean(cells: Cells, axis: int, at: int) -> float:
    """In percentage points, over the cells of one nesting (axis 0) or one length (1)."""
    values = [100 * share.value for place, share in cells.items() if place[axis] == at]
    return sum(values) / len(values)


def unit_of(run: Path) -> str:
    """The recurrent unit of a run's model, or of its report where the weights were not kept."""
    from gfrnn.models.seq2seq import Seq2Seq
    from gfrnn.tasks.programs.grid import read_report

    reports = [run / name for name in (GRID, GRID_QUICK) if (run / name).exists()]
    if reports and model_inside(run) is None:
        return str(read_report(reports[0])["model"]["unit"])
    return Seq2Seq.from_pretrained(run).decoder.unit


def plot(
    runs: Sequence[Path],
    out: Path,
    *,
    quick: bool = False,
    progress: Callable[[str], Progress] = Progress,
    tell: Callable[[str], None] = LOG.info,
) -> list[Path]:
    """What `gfrnn plot RUN RUN ... --heatmap` does: out.svg and .png of the paper's metric, out-exact of exact match.

    Runs without a report are evaluated now, which takes minutes: whatever can be wrong with the runs is looked for
    first. It is done in full, unless `quick` asks for less or one of the runs has been evaluated quickly only.
    """
    from gfrnn.tasks.programs.grid import grid_of

    names = shortest_names(list(runs))
    by_unit([(name, unit_of(run)) for name, run in zip(names, runs, strict=True)])
    drawing()
    quick = quick or any((run / GRID_QUICK).exists() and not (run / GRID).exists() for run in runs)
    reports = [(name, grid_of(run, quick=quick, progress=progress)) for name, run in zip(names, runs, strict=True)]
    written = []
    for metric, suffix in (("symbol_accuracy", ""), ("exact_match", "-exact")):
        rows = pair(reports, metric)
        written += draw(rows, metric, out.with_name(out.name + suffix))
        tell(f"{METRICS[metric]}, {rows[0].per_cell:,} programs a cell:\n{describe(rows)}")
    return written
