"""What a run that was published without its weights still says of itself: its grid, or the validations in its log."""

from pathlib import Path
from typing import Any

from gfrnn.errors import UsageError
from gfrnn.storage.run_folder import CONFIG, GRID, GRID_QUICK, METRICS, model_inside
from gfrnn.training.runlog import read_metrics

ABOUT = {"kind", "step", "seconds", "best", "characters"}  # of a record: where it stands in the run, not what it found


def without_weights(run: Path) -> bool:
    """Whether the folder is a run's, but without a model."""
    return (run / CONFIG).exists() and model_inside(run) is None


def kept_grid(run: Path, quick: bool) -> dict[str, Any] | None:
    """The grid that `gfrnn eval` left in the folder: the kind asked for, else the other."""
    from gfrnn.tasks.programs.grid import read_report

    for name in (GRID_QUICK, GRID) if quick else (GRID, GRID_QUICK):
        if (run / name).exists():
            return {"kept": name, **read_report(run / name)}
    return None


def kept_validation(run: Path, asked: list[str]) -> dict[str, Any] | None:
    """The last word of the log: the best model on the whole validation set if it has that, else its best validation."""
    records = read_metrics(run) if (run / METRICS).exists() else []
    valid = [record for record in records if record["kind"] == "valid"]
    best = [record for record in valid if record.get("best")] or valid
    found = [record for record in records if record["kind"] == "final"] or best
    if not found:
        return None
    if asked:
        raise UsageError(f"{run} holds no weights, only its log: {' and '.join(asked)} cannot be answered from that")
    measured = {key: value for key, value in found[-1].items() if key not in ABOUT}
    start = next((record for record in records if record["kind"] == "start"), {})
    about = {"run": str(run), "recipe": start.get("recipe"), "kept": METRICS, "split": "valid"}
    return {**about, "updates": best[-1]["step"] if best else found[-1]["step"], **measured}
