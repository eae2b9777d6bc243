"""All comparisons in bits per character in one picture (a forest plot): the paper's, and what each group says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gfrnn.report.figures import COLOURS, house_style
from gfrnn.report.gains import Comparison, Gain
from gfrnn.report.page import INK, PAPER
from gfrnn.report.pictures import save
from gfrnn.report.wording import KINDS, UNITS, group_words, unit_of

PAPERS_WAY, OTHER_WAY = COLOURS[0], COLOURS[1]
LINEAR = 0.05  # bits per character: up to here the axis is linear, beyond logarithmic
TICKS = (0.02, 0.05, 0.1, 0.2, 0.4)
LINE = 0.21  # inches


def plot(found: Sequence[Comparison], stem: Path) -> None:
    """A heading for each comparison with the paper's gain, below it a line for each group."""
    lines = sum(1 + len(comparison.gains) for comparison in found)
    with house_style() as pyplot:
        figure, panel = pyplot.subplots(figsize=(10.5, LINE * lines + 1.3), layout="constrained")
        panel.axvline(0, color=INK, linewidth=0.8)
        labels, y = [], 0
        for comparison in found:
            panel.axhline(y - 0.5, color=INK, linewidth=0.4, alpha=0.3)
            labels.append(title(comparison))
            if comparison.paper is not None:
                panel.plot([comparison.paper], [y], "D", color=INK, markersize=5)
            y += 1
            for gain in comparison.gains:
                labels.append(f"{group_words(gain.group)} ({seeds_words(gain)})")
                draw(panel, gain, y)
                y += 1
        panel.set_yticks(range(lines), labels)
        for label, text in zip(panel.get_yticklabels(), labels, strict=True):
            label.set_fontweight("bold" if text in {title(comparison) for comparison in found} else "normal")
        panel.tick_params(axis="y", length=0)
        panel.set(ylim=(lines - 0.5, -0.5))
        panel.set_xscale("symlog", linthresh=LINEAR, linscale=0.7)
        reach = max(abs(edge) for c in found for edge in edges(c))
        ticks = [tick for tick in TICKS if tick <= max(reach, LINEAR)]
        places = [*(-tick for tick in reversed(ticks)), 0, *ticks]
        panel.set_xticks(places, [f"{place:+g}" if place else "0" for place in places])
        panel.xaxis.set_minor_locator(pyplot.NullLocator())
        panel.set_xlim(-1.15 * max(reach, LINEAR), 1.15 * max(reach, LINEAR))
        panel.set_xlabel(
            "gain in bits per character\nleft of 0: the other way round      right of 0: as the paper has it"
        )
        panel.grid(axis="x", alpha=0.25)
        figure.legend(handles=legend(), loc="outside lower center", ncols=3, frameon=False)
        figure.get_layout_engine().set(w_pad=0.15)  # bold labels are wider than it thinks
        save(figure, stem)


def title(comparison: Comparison) -> str:
    """
    >>> title(Comparison("gated-lstm", "stacked-lstm", 0.026, ()))
    'LSTM: gated feedback over stacked'
    """
    better, worse = (KINDS[row.rpartition("-")[0]] for row in (comparison.better, comparison.worse))
    return f"{UNITS[unit_of(comparison.better)]}: {better} over {worse}"


def seeds_words(gain: Gain) -> str:
    """
    >>> seeds_words(Gain(("modern", "3M"), 0.1, "validation", 1))
    'one seed, validation'
    """
    many = "one seed" if gain.seeds == 1 else f"{gain.seeds} seeds"
    return f"{many}, validation" if gain.noise == "validation" else many


def edges(comparison: Comparison) -> list[float]:
    """The ends of everything that is drawn."""
    spans = [gain.interval for gain in comparison.gains if gain.interval]
    values = [gain.value for gain in comparison.gains] + [end for span in spans for end in (span.low, span.high)]
    return [*values, *([] if comparison.paper is None else [comparison.paper])]


def draw(panel: Any, gain: Gain, y: int) -> None:
    """Full where seeds decide, hollow where they do not; dotted is the noise of the test text alone."""
    colour = INK if not gain.decided else PAPERS_WAY if gain.value > 0 else OTHER_WAY
    if gain.interval is not None:
        style = "-" if gain.noise == "seeds" else ":"
        panel.plot([gain.interval.low, gain.interval.high], [y, y], linestyle=style, color=colour, linewidth=1.6)
    face = colour if gain.decided else PAPER
    panel.plot([gain.value], [y], "o", color=colour, markerfacecolor=face, markersize=5)


def legend() -> list[Any]:
    from matplotlib.lines import Line2D

    def mark(label: str, colour: str, **style: Any) -> Line2D:
        return Line2D([], [], color=colour, label=label, markersize=5, **style)

    return [
        mark("the paper", INK, marker="D", linestyle=""),
        mark("decided, as the paper has it", PAPERS_WAY, marker="o"),
        mark("decided, the other way round", OTHER_WAY, marker="o"),
        mark("seeds do not decide it", INK, marker="o", markerfacecolor=PAPER),
        mark("one seed: 95 % over the test text", INK, marker="o", markerfacecolor=PAPER, linestyle=":"),
        mark("validation split only", INK, marker="o", markerfacecolor=PAPER, linestyle=""),
    ]
