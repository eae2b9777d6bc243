"""Learning curves: the validation metric against wall-clock, characters and updates (the paper's figure)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gfrnn.errors import DataError, UsageError
from gfrnn.report.pictures import save
from gfrnn.storage.run_folder import CONFIG
from gfrnn.training.config import Config
from gfrnn.training.runlog import read_metrics

AXES = {
    "seconds": ("wall-clock, minutes", 1 / 60),
    "characters": ("characters, millions", 1e-6),
    "step": ("updates", 1.0),
}
# 3 : 1 or more on white, the first six also on a dark page, and told apart by a colour-blind reader (after Okabe and
# Ito). Line styles and markers change along, in steps of their own: of 21 runs no two share two of the three.
COLOURS = ("#0072b2", "#d55e00", "#009473", "#b8558f", "#a66f00", "#6b7a8f", "#000000")
STYLES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
NAMES = {"bpc": "validation bits per character", "symbol_accuracy": "validation symbol accuracy"}
WHOLE = "best model, whole split"
# Inches: a panel, and in the legend a line, a character, and what stands before a label.
PANEL, LINE, CHARACTER, HANDLE = (4.5, 3.5), 0.22, 0.08, 1.0


@dataclass(frozen=True)
class Curve:
    """A run's validations. `part` of the split was validated on, if not all of it; `whole` is the best model on all."""

    metric: str
    records: list[dict[str, Any]]
    part: int | None
    whole: float | None


def curve_of(run: Path) -> Curve:
    """The metric a run is judged by, and its validation records."""
    history = read_metrics(run)
    records = [record for record in history if record["kind"] == "valid"]
    if not records:
        raise DataError(f"{run} has no validation yet: there is nothing to plot")
    metric = next((name for name in NAMES if name in records[0]), None)
    if metric is None:
        raise DataError(f"{run}: its validations have none of {', '.join(NAMES)}")
    for record in records:
        wrong = [key for key in (*AXES, metric) if type(record.get(key)) not in (int, float)]
        if wrong:
            raise DataError(f"{run}: the validation at update {record['step']} has no number called {wrong[0]}")
    final = [record[metric] for record in history if record["kind"] == "final" and metric in record]
    validated = records[-1].get("characters_validated")
    only_part = final or ((run / CONFIG).exists() and Config.load(run / CONFIG).options.get("validate_chars"))
    return Curve(metric, records, validated if only_part else None, final[-1] if final else None)


def shortest_names(runs: list[Path]) -> list[str]:
    """The ends of the paths, as long as it takes to tell the runs apart. A link has its own name, not its target's.

    >>> shortest_names([Path("a/first/x"), Path("a/second/x"), Path("y")])
    ['first/x', 'second/x', 'y']
    """
    parts = [run.absolute().parts for run in runs]

    def short(own: tuple[str, ...]) -> str:
        lengths = (n for n in range(1, len(own)) if sum(other[-n:] == own[-n:] for other in parts) == 1)
        return str(Path(*own[-next(lengths, len(own)) :]))

    return [short(own) for own in parts]


def look(number: int) -> dict[str, Any]:
    """Colour, line style and marker of the `number`-th run."""
    colour, style = COLOURS[number % len(COLOURS)], STYLES[number % len(STYLES)]
    return {"color": colour, "linestyle": style, "marker": MARKERS[(number + 5 * (number // 7)) % len(MARKERS)]}


def plot(
    runs: list[Path],
    out: Path,
    names: list[str] | None = None,
    looks: list[dict[str, Any]] | None = None,
    axes: Sequence[str] = tuple(AXES),
) -> list[Path]:
    """Draw the curves of all runs into OUT.svg and OUT.png, a panel for each axis; returns the files.

    A run has its own name or one given, and looks like its place in the row or as it is given.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError("gfrnn plot needs matplotlib: pip install 'gfrnn[report]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    curves = {run: curve_of(run) for run in runs}
    metrics = {curve.metric for curve in curves.values()}
    if len(metrics) != 1:
        raise UsageError(f"these runs are not comparable: they measure {' and '.join(sorted(metrics))}")
    parts = {curve.part for curve in curves.values()}
    labels = list(names or shortest_names(list(curves)))
    if len(parts) > 1:  # then every run says it of itself
        labels = [
            f"{label} {of_part(curve.part)}".strip() for label, curve in zip(labels, curves.values(), strict=True)
        ]
    stars = any(curve.whole is not None for curve in curves.values())
    columns, rows = table_of([*labels, WHOLE] if stars else labels, PANEL[0] * len(axes))
    size = (PANEL[0] * len(axes), PANEL[1] + LINE * rows)
    figure, panels = pyplot.subplots(1, len(axes), figsize=size, sharey=True, layout="constrained")
    for panel, axis in zip(panels, axes, strict=True):
        for number, curve in enumerate(curves.values()):
            draw_curve(panel, axis, curve, looks[number] if looks else look(number), labels[number])
        panel.set_xlabel(AXES[axis][0])
        panel.grid(alpha=0.3)
    panels[0].set_ylabel(f"{NAMES[metrics.pop()]}\n{of_part(parts.pop()) if len(parts) == 1 else ''}".strip())
    add_legend(figure, panels[0], stars, columns)
    return save(figure, out)


def of_part(part: int | None) -> str:
    return f"(first {part:,} characters)" if part else ""


def draw_curve(panel: Any, axis: str, curve: Curve, style: dict[str, Any], label: str) -> None:
    """One run in one panel; its value on the whole split is a star where the best model was found."""
    scale = AXES[axis][1]
    x = [record[axis] * scale for record in curve.records]
    y = [record[curve.metric] for record in curve.records]
    marked = max(1, len(x) // 12)  # markers on every point of a long curve would hide it
    (line,) = panel.plot(x, y, **style, markersize=4, markevery=marked, linewidth=1.4)
    line.set_label(label.replace("$", r"\$"))
    if curve.whole is not None:
        best = max(i for i, record in enumerate(curve.records) if record.get("best") or i == 0)
        panel.plot(
            x[best],
            curve.whole,
            "*",
            color=style["color"],
            markersize=12,
            markeredgecolor="white",
            markeredgewidth=0.6,
            zorder=3,
        )


def table_of(labels: list[str], width: float) -> tuple[int, int]:
    """Columns and rows of a legend that is no wider than that; its columns are filled one after the other."""
    for columns in range(len(labels), 0, -1):
        rows = -(-len(labels) // columns)
        longest = [max(map(len, labels[first : first + rows])) for first in range(0, len(labels), rows)]
        if sum(HANDLE + CHARACTER * characters for characters in longest) < width:
            break
    return len(longest), rows


def add_legend(figure: Any, panel: Any, stars: bool, columns: int) -> None:
    """Below the panels; a label that begins with an underscore is shown, too."""
    from matplotlib.lines import Line2D

    lines = [line for line in panel.get_lines() if line.get_linestyle() != "None"]
    handles, labels = list(lines), [str(line.get_label()) for line in lines]
    if stars:
        handles.append(Line2D([], [], color="#777777", marker="*", linestyle="None", markersize=10))
        labels.append(WHOLE)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, handlelength=4.0)
