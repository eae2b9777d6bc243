"""The figures of a report, as SVG and PNG: curves, heat maps, and what the gates do.

They are drawn in the page's ink on the page's paper (two colours of their own, which page.py replaces in HTML).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gfrnn.report import curves, heatmap, rivals
from gfrnn.report.evidence import Evidence
from gfrnn.report.finished import Group, Run
from gfrnn.report.gates import AROUND, BINS, EVENTS
from gfrnn.report.page import INK, PAPER
from gfrnn.report.pictures import save
from gfrnn.report.rules import clock_flaw
from gfrnn.report.wording import KINDS, unit_of

COLOURS = curves.COLOURS[:4]  # for the events
LOOKS = ("gated", "stacked", "gated-own", "gated-L", "single", "feedback")  # rows, in the order of curves.look


@contextlib.contextmanager
def house_style() -> Iterator[Any]:
    """matplotlib's pyplot, set for a report."""
    pyplot = heatmap.drawing()
    inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor", "xtick.color", "ytick.color")
    papers = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    settings: Any = {
        **dict.fromkeys(inks, INK),
        **dict.fromkeys(papers, PAPER),
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with pyplot.rc_context(settings):
        yield pyplot


def learning_curves(evidence: Evidence, group: Group, unit: str, stem: Path) -> str:
    """The validations of all runs of a unit; returns what was drawn, in words: nothing if there is nothing to draw."""
    runs = [run for run in evidence.runs if run.group == group and unit_of(run.row) == unit and run.is_text]
    runs = [run for run in runs if run.validations]
    if not runs:
        return ""
    flaw = clock_flaw(runs)
    with house_style():
        if len({run.seed for run in runs}) > 1:
            return curves_of_rows(runs, not flaw, stem) + (f" Minutes do not compare: {flaw}." if flaw else "")
        labels = [KINDS[kind_of(run.row)] for run in runs]
        axes = [axis for axis in curves.AXES if axis != "seconds" or not flaw]
        curves.plot([run.folder for run in runs], stem, labels, [look_of(run.row) for run in runs], axes)
    if flaw:
        return f"validation against characters and updates. Minutes do not compare: {flaw}."
    return "validation against wall-clock, characters and updates."


def kind_of(row: str) -> str:
    return row.rpartition("-")[0]


def look_of(row: str) -> dict[str, Any]:
    """One kind of row looks the same in every figure."""
    return curves.look(LOOKS.index(kind_of(row)))


def curves_of_rows(runs: list[Run], with_minutes: bool, stem: Path) -> str:
    """Of rows with several seeds, and what was drawn, in words."""
    rows: dict[str, dict[int, Run]] = {}
    for run in runs:
        rows.setdefault(run.row, {})[run.seed] = run
    drawn = {name: rivals.Row(KINDS[kind_of(name)], found, look_of(name)) for name, found in rows.items()}
    other = next((row for name, row in drawn.items() if name.startswith("stacked-")), None)
    rivals.plot(list(drawn.values()), other, with_minutes, stem)
    parts = sorted({str(f"{record['characters_validated']:,}") for run in runs for record in run.validations[-1:]})
    said = f"validation on the first {' or '.join(parts)} characters of the split against characters"
    difference = ", and the difference from the stack, paired by seed" if other else ""
    return f"{said}{difference}{', and against wall-clock' if with_minutes else ''}."


def heat_maps(pairs: list[tuple[str, Run, Run]], metric: str, stem: Path) -> str:
    """Of (unit, stacked, gated); returns what they say in words."""
    reports = [(run.row, run.grid) for _, stacked, gated in pairs for run in (stacked, gated) if run.grid]
    rows = heatmap.pair(reports, metric)
    with house_style():
        heatmap.draw(rows, metric, stem)
    return heatmap.describe(rows)


def gate_histograms(document: dict[str, Any], stem: Path) -> None:
    """One panel for each pair of layers: to the right the layer that is heard, upwards the one that hears."""
    mean, histogram = np.array(document["mean"]), np.array(document["histogram"], dtype=float)
    layers, edges = len(mean), np.linspace(0, 1, BINS + 1)
    with house_style() as pyplot:
        figure, axes = pyplot.subplots(
            layers, layers, figsize=(2.6 * layers, 1.5 * layers + 0.5), sharex=True, sharey=True, squeeze=False,
            layout="constrained",
        )  # fmt: skip
        share = histogram / histogram.sum(-1, keepdims=True)
        for hears, heard in np.ndindex(layers, layers):
            panel = axes[layers - 1 - hears, heard]
            panel.stairs(share[hears, heard], edges, fill=True, color=COLOURS[0], alpha=0.75)
            panel.axvline(mean[hears, heard], color=COLOURS[1], linewidth=1.6)
            panel.set_title(f"{heard + 1} → {hears + 1}: mean {mean[hears, heard]:.2f}", fontsize=9)
            panel.set(xlim=(0, 1), yscale="log", ylim=(1e-4, 1))
        axes[-1, layers // 2].set_xlabel("value of the gate")
        axes[layers // 2, 0].set_ylabel("share of characters (50 bins)")
        save(figure, stem)


def gates_around(document: dict[str, Any], stem: Path) -> None:
    """The mean of every gate around each event, against its mean over the text."""
    mean = np.array(document["mean"])
    layers, offsets = len(mean), np.arange(-AROUND, AROUND + 1)
    with house_style() as pyplot:
        figure, axes = pyplot.subplots(
            layers, layers, figsize=(3.0 * layers, 1.75 * layers + 0.8), sharex=True, sharey=True, squeeze=False,
            layout="constrained",
        )  # fmt: skip
        events = [(name, document["around"][name]) for name in EVENTS if document["around"][name]["count"]]
        for hears, heard in np.ndindex(layers, layers):
            panel = axes[layers - 1 - hears, heard]
            panel.axhline(mean[hears, heard], color=INK, linewidth=0.8, alpha=0.6)
            panel.axvline(0, color=INK, linewidth=0.5, alpha=0.4)
            for number, (_, event) in enumerate(events):
                values = np.array(event["mean"])[:, hears, heard]
                panel.plot(offsets, values, color=COLOURS[number], linestyle=curves.STYLES[number], linewidth=1.4)
            panel.set_title(f"{heard + 1} → {hears + 1}", fontsize=9)
            panel.set_ylim(0, 1)
        axes[-1, layers // 2].set_xlabel("characters after the event")
        axes[layers // 2, 0].set_ylabel("mean of the gate")
        lines = axes[0, 0].get_lines()[2:]
        labels = [f"{name} ({event['count']:,})" for name, event in events]
        figure.legend(lines, labels, loc="outside lower center", ncols=len(labels), frameon=False, handlelength=3.5)
        save(figure, stem)
