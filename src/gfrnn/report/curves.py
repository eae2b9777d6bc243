"""Learning curves: the validation metric against wall-clock, characters and updates (the paper's figure)."""

from pathlib import Path
from typing import Any

from gfrnn.errors import DataError, UsageError
from gfrnn.training.runlog import read_metrics

AXES = {
    "seconds": ("wall-clock, minutes", 1 / 60),
    "characters": ("characters, millions", 1e-6),
    "step": ("updates", 1.0),
}
# Dark enough on white, and told apart by a colour-blind reader; line styles repeat the distinction.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
STYLES = ("-", "--", "-.", ":")
NAMES = {"bpc": "validation bits per character", "symbol_accuracy": "validation symbol accuracy"}


def validations(run: Path) -> tuple[str, list[dict[str, Any]]]:
    """The metric a run is judged by, and its validation records."""
    records = [record for record in read_metrics(run) if record["kind"] == "valid"]
    if not records:
        raise DataError(f"{run} has no validation yet: there is nothing to plot")
    metric = next((name for name in NAMES if name in records[0]), None)
    if metric is None:
        raise DataError(f"{run}: its validations have none of {', '.join(NAMES)}")
    for record in records:
        wrong = [key for key in (*AXES, metric) if type(record.get(key)) not in (int, float)]
        if wrong:
            raise DataError(f"{run}: the validation at update {record['step']} has no number called {wrong[0]}")
    return metric, records


def shortest_names(runs: list[Path]) -> list[str]:
    """The ends of the paths, as long as it takes to tell the runs apart.

    >>> shortest_names([Path("a/first/x"), Path("a/second/x"), Path("y")])
    ['first/x', 'second/x', 'y']
    """
    parts = [run.resolve().parts for run in runs]

    def short(own: tuple[str, ...]) -> str:
        lengths = (n for n in range(1, len(own)) if sum(other[-n:] == own[-n:] for other in parts) == 1)
        return str(Path(*own[-next(lengths, len(own)) :]))

    return [short(own) for own in parts]


def plot(runs: list[Path], out: Path) -> list[Path]:
    """Draw the curves of all runs into OUT.svg and OUT.png; returns the files."""
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError("gfrnn plot needs matplotlib: pip install 'gfrnn[report]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    curves = {run: validations(run) for run in runs}
    labels = shortest_names(list(curves))
    metrics = {metric for metric, _ in curves.values()}
    if len(metrics) != 1:
        raise UsageError(f"these runs are not comparable: they measure {' and '.join(sorted(metrics))}")
    (metric,) = metrics
    figure, panels = pyplot.subplots(1, len(AXES), figsize=(4.5 * len(AXES), 3.6), sharey=True, layout="constrained")
    for panel, (key, (label, scale)) in zip(panels, AXES.items(), strict=True):
        for number, (_, records) in enumerate(curves.values()):
            panel.plot(
                [record[key] * scale for record in records],
                [record[metric] for record in records],
                color=COLOURS[number % len(COLOURS)],
                linestyle=STYLES[number % len(STYLES)],
                marker=".",
                label=labels[number],
            )
        panel.set_xlabel(label)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel(NAMES[metric])
    panels[-1].legend(frameon=False)
    out.parent.mkdir(parents=True, exist_ok=True)
    files = [out.with_name(f"{out.name}.{suffix}") for suffix in ("svg", "png")]
    matplotlib.rcParams["svg.hashsalt"] = "gfrnn"  # equal runs give equal files
    for file in files:
        figure.savefig(file, dpi=150, metadata={"Date": None} if file.suffix == ".svg" else None)
    pyplot.close(figure)
    return files
