"""A figure as files: the SVG and the PNG of one drawing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 150


def save(figure: Figure, stem: Path) -> list[Path]:
    """Writes stem.svg and stem.png, and closes the figure. Equal figures give equal files."""
    from matplotlib import pyplot

    stem.parent.mkdir(parents=True, exist_ok=True)
    svg, png = (stem.with_name(f"{stem.name}.{kind}") for kind in ("svg", "png"))
    with pyplot.rc_context({"svg.hashsalt": "gfrnn"}):
        figure.savefig(svg, dpi=DOTS_PER_INCH, metadata={"Date": None})
        figure.set_layout_engine(None)  # everything has its place now; finding it takes longer than drawing
        figure.savefig(png, dpi=DOTS_PER_INCH)
    pyplot.close(figure)
    return [svg, png]
