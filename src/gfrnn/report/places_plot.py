"""What gated feedback gains on the stack along the test split, as a picture: a panel for each unit and group."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gfrnn.report.figures import COLOURS, house_style
from gfrnn.report.page import INK
from gfrnn.report.pictures import save
from gfrnn.report.places import STRETCH, Places
from gfrnn.report.wording import UNITS, group_words

HEIGHT = 1.45  # inches of a panel


def plot(found: Sequence[Places], stem: Path) -> None:
    """Bars of the mean of the seeds, a dot for each seed, a line at the median of the stretches."""
    with house_style() as pyplot:
        figure, panels = pyplot.subplots(
            len(found), 1, figsize=(10.5, HEIGHT * len(found) + 0.8), sharex=True, squeeze=False, layout="constrained"
        )
        for panel, one in zip(panels[:, 0], found, strict=True):
            starts = np.arange(len(one.sizes)) * STRETCH
            middle, width = 1e-6 * (starts + one.sizes / 2), 0.85e-6 * one.sizes
            colours = [COLOURS[0] if gain > 0 else COLOURS[1] for gain in one.gains]
            panel.bar(middle, one.gains, width, color=colours, alpha=0.75)
            if len(one.bits) > 1:
                for gains in one.by_seed.values():
                    panel.plot(middle, gains, ".", color=INK, markersize=3, alpha=0.6)
            panel.axhline(0, color=INK, linewidth=0.8)
            panel.axhline(float(np.median(one.gains)), color=INK, linewidth=0.8, linestyle="--")
            panel.set_title(f"{UNITS[one.unit]}, {group_words(one.group)}", fontsize=9, loc="left")
            panel.grid(axis="y", alpha=0.25)
            panel.margins(x=0.01)
        panels[-1, 0].set_xlabel("millions of characters into the test split")
        figure.supylabel("gain of gated feedback on the stack, bits per character", fontsize=9)
        save(figure, stem)
