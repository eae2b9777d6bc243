"""A bench as a picture: speed side by side, growth with rows, steps and parameters, and memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gfrnn.errors import UsageError
from gfrnn.report.curves import COLOURS, STYLES
from gfrnn.report.pictures import save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Results = dict[str, Any]
SPEEDS = {"train": "training step", "forward": "forward only", "generate": "generation"}
AXES = {"rows": "rows B", "steps": "steps T", "parameters": "parameters"}
MARKERS = "osD^v"
INCHES_PER_BAR = 0.19  # so that no label lies on another


def require_matplotlib() -> None:
    """Before anything long is measured: is there something to draw with?"""
    try:
        import matplotlib
    except ImportError:
        raise UsageError("--plot needs matplotlib: pip install 'gfrnn[report]'") from None
    matplotlib.use("agg")


def draw(results: Results, path: Path) -> list[Path]:
    """Writes `path` as .svg and as .png: one panel per section that was run."""
    require_matplotlib()
    from matplotlib import pyplot

    groups = results["groups"]
    panels: list[tuple[Any, ...]] = []
    for section, title in SPEEDS.items():
        chosen = [group for group in groups if group["section"] == section]
        panels += [(speed, chosen, title)] if chosen else []
    panels += [(growth, group, AXES[group["name"]]) for group in groups if group["section"] == "scaling"]
    panels += [(memory, results["memory"])] if results["memory"] else []
    precise = [group for group in groups if group["section"] == "precision"]
    panels += [(speed, precise, "training step in both precisions")] if precise else []
    if not panels:
        raise UsageError("--plot: none of the sections that were run has a picture")
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    with pyplot.rc_context({"font.size": 9}):
        heights = [
            max(4.6, *(INCHES_PER_BAR * bars_of(what[0]) for _, *what in panels[row * across : (row + 1) * across]))
            for row in range(down)
        ]
        size = (6.8 * across, sum(heights))
        figure, axes = pyplot.subplots(down, across, figsize=size, height_ratios=heights, squeeze=False)
        figure.set_layout_engine("constrained", w_pad=0.2, h_pad=0.1)
        for place in axes.flat[len(panels) :]:
            place.set_visible(False)
        for place, (panel, *what) in zip(axes.flat, panels, strict=False):
            panel(place, *what)
        where = results["environment"]
        figure.suptitle(f"gfrnn bench: {where['cpu']}, threads: {where['threads']}, torch {where['torch']}")
        return save(figure, path.with_suffix("") if path.suffix in (".svg", ".png") else path)


def bars_of(what: Results | list[Results]) -> int:
    """How many bars a panel has; a group of growth has none."""
    return sum(len(one.get("timed", [one])) for one in what) if isinstance(what, list) else 0


def speed(axes: Axes, groups: list[Results], title: str) -> None:
    """Characters per second of every contender, with quartiles."""
    labels, values, errors, colours = [], [], [], []
    for group in groups:
        for timed in group["timed"]:
            if timed["characters"]:
                found = timed["characters_per_second"]
                labels.append(f"{group['name']}: {timed['name']}")
                values.append(found["median"] / 1000)
                errors.append(
                    ((found["median"] - found["low"]) / 1000, (found["high"] - found["median"]) / 1000),
                )
                colours.append(colour(timed["name"]))
    bars(axes, labels, values, colours, errors)
    axes.set(title=title, xlabel="thousand characters per second (bars: quartiles)")


def colour(contender: str) -> str:
    """Ours, the hand-written loop, torch's own layers: told apart by a colour-blind reader."""
    return COLOURS[1] if contender == "loop" else "0.6" if contender.startswith("nn.") else COLOURS[0]


def bars(
    axes: Axes,
    labels: list[str],
    values: list[float],
    colours: list[str],
    errors: list[tuple[float, float]] | None = None,
) -> None:
    """Horizontal bars, first on top, each with its number."""
    spans = None if errors is None else [list(side) for side in zip(*errors, strict=True)]
    drawn = axes.barh(range(len(values)), values, color=colours, xerr=spans, ecolor="0.3")
    axes.bar_label(drawn, [f"{value:.3g}" for value in values], padding=4, fontsize=8)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.margins(x=0.15)


def growth(axes: Axes, group: Results, label: str) -> None:
    """Seconds of a training step over what grows, both logarithmic."""
    for number, series in enumerate(dict.fromkeys(timed["series"] for timed in group["timed"])):
        points = [timed for timed in group["timed"] if timed["series"] == series]
        fit = group["exponents"].get(series)
        axes.loglog(
            [timed["x"] for timed in points],
            [timed["seconds_spread"]["median"] for timed in points],
            color=COLOURS[number % len(COLOURS)],
            linestyle=STYLES[number % len(STYLES)],
            marker=MARKERS[number % len(MARKERS)],
            label=series if fit is None else f"{series}, exponent {fit['median']:.2f}",
        )
    values = sorted({timed["x"] for timed in group["timed"]})
    axes.set_xticks(values, [f"{value:,.0f}" for value in values], rotation=45 if max(values) > 1e4 else 0)
    axes.xaxis.minorticks_off()
    start = group["about"].get("fit_from")
    axes.set(title=f"training step over {label}", xlabel=label + (f" (fitted from {start})" if start else ""))
    axes.set_ylabel("seconds")
    axes.grid(alpha=0.3)
    axes.legend()


def memory(axes: Axes, rows: list[Results]) -> None:
    """What is kept for the backward."""
    bars(
        axes,
        [f"{row['model']}: {row['contender']}" for row in rows],
        [row["kept_bytes"] / 1e6 for row in rows],
        [colour(row["contender"]) for row in rows],
    )
    axes.set(title=f"kept for the backward, {rows[0]['rows']} x {rows[0]['steps']}", xlabel="MB")
