"""How far a run is, from its folder alone: nobody has to be asked, and any number of machines may share the folders."""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gfrnn.campaign.plan import Planned
from gfrnn.errors import DataError, GfrnnError
from gfrnn.storage.files import read_small, sha256_of
from gfrnn.storage.run_folder import (
    CONFIG,
    ENVIRONMENT,
    GRID,
    LOCK,
    METRICS,
    MODEL,
    STDERR,
    TRAINING_STATE,
    blocks_name,
    model_inside,
)
from gfrnn.storage.tensorfile import unpack_json
from gfrnn.tasks.programs.grid import read_report
from gfrnn.tasks.text import blocks
from gfrnn.training.checkpoint import Checkpoints
from gfrnn.training.config import Config
from gfrnn.training.run import FREE
from gfrnn.training.runlog import read_metrics

State = Literal["missing", "running", "stopped", "trained", "finished", "diverged", "foreign"]
UNFINISHED = ("missing", "stopped", "trained")  # what a campaign has to do something about
BEGINNINGS = (LOCK, METRICS, STDERR, "*.tmp")  # what a run may leave that is stopped before it has a config.yaml


@dataclass(frozen=True)
class RunState:
    """One run folder as it is.

    missing   nothing there           stopped   begun, and nobody is at it
    running   locked by a process     trained   the budget is used up, but it was not evaluated
    finished  trained and evaluated   foreign   not the run that was planned, or damaged: `why` says it
    diverged  of a search: training met what is not finite, and `why` says where; it would again
    """

    folder: Path
    state: State
    why: str = ""
    characters: int = 0
    seconds: float = 0.0
    updates: int = 0
    cpu: str = ""  # where it was trained last
    threads: int = 0

    @property
    def rate(self) -> float | None:
        """Characters per second, validation included."""
        return self.characters / self.seconds if self.seconds > 0 and self.characters else None


def locked(folder: Path) -> bool:
    """Whether a process of this machine (or of one that shares its locks) is at work in the folder."""
    if not (folder / LOCK).exists():
        return False
    with (folder / LOCK).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def look(folder: Path, planned: Planned, text_sha256: str | None = None) -> RunState:
    """The state of a planned run in the campaign's folder; a run on another text than this one is foreign."""
    run = folder / planned.name
    try:
        if not run.exists() or not any(run.iterdir()):
            return RunState(run, "missing")
        return examine(run, planned, text_sha256)
    except GfrnnError as error:
        return RunState(run, "foreign", str(error))
    except OSError as error:
        return RunState(run, "foreign", f"{error.filename or run} cannot be read: {error.strerror}")


def examine(run: Path, planned: Planned, text_sha256: str | None = None) -> RunState:
    if not (run / CONFIG).exists():
        if not all(any(path.match(name) for name in BEGINNINGS) for path in run.iterdir()):
            return RunState(run, "foreign", f"{run} has no {CONFIG}: it is no run folder")
        return RunState(run, "running" if locked(run) else "stopped")
    why = difference(Config.load(run / CONFIG), planned.config)
    if why:
        return RunState(run, "foreign", f"{run} holds another run: {why}")
    history = read_metrics(run)
    progress = progress_of(run, history)
    if locked(run):
        return RunState(run, "running", **progress)
    last = last_checkpoint(run)
    read = last.get("identity", {}).get("sha256") if planned.is_text else None
    if text_sha256 and read and read != text_sha256:
        why = f"it was trained on another text, sha256 {read[:16]}, not {text_sha256[:16]}"
        return RunState(run, "foreign", f"{run}: {why}", **progress)
    if not planned.wants_test and history and history[-1]["kind"] == "diverged":
        return RunState(run, "diverged", str(history[-1].get("why", "")), **progress)
    if not is_done(planned, last, history):
        return RunState(run, "stopped", **progress)
    evaluated = not planned.wants_test or is_evaluated(run, planned)
    if not evaluated and model_inside(run) is None:  # `gfrnn train` makes it again from the checkpoint
        return RunState(run, "stopped", **progress)
    return RunState(run, "finished" if evaluated else "trained", **progress)


def difference(found: Config, asked: Config) -> str:
    """What makes a run another one than was asked for; how often it is saved or logged, and the text's path, do not."""
    if found.recipe != asked.recipe:
        return f"{found.recipe}, not {asked.recipe}"
    there, here = found.options, asked.options
    keys = [key for key in here if key not in FREE and there.get(key) != here[key]]
    return "; ".join(f"{key} is {there.get(key)}, not {here[key]}" for key in keys)


def progress_of(run: Path, history: list[dict[str, Any]]) -> dict[str, Any]:
    """How far it is, how long that took, and where it was trained last."""
    last: dict[str, Any] = next((r for r in reversed(history) if r["kind"] in ("train", "valid")), {})
    place = next((r.get("environment") for r in reversed(history) if r["kind"] == "resume"), None)
    if not isinstance(place, dict):
        place = unpack_json(read_small(run / ENVIRONMENT), run / ENVIRONMENT) if (run / ENVIRONMENT).exists() else {}
    try:
        return {
            "characters": int(last.get("characters", 0)),
            "seconds": float(last.get("seconds", 0.0)),
            "updates": int(last.get("step", 0)),
            "cpu": str(place.get("cpu", "")),
            "threads": int(place.get("threads", 0)),
        }
    except (ValueError, TypeError) as error:
        raise DataError(f"{run / METRICS} is damaged: {error}") from error


def last_checkpoint(run: Path) -> dict[str, Any]:
    """The counters of the newest checkpoint that can be read; {} without any. `gfrnn train` verifies the rest."""
    checkpoints = Checkpoints(run)
    for step in reversed(checkpoints.steps()):
        try:
            path = checkpoints.folder / f"step-{step}" / TRAINING_STATE
            counters = unpack_json(read_small(path), path)
            if isinstance(counters.get("identity"), dict):
                return counters
        except DataError:
            continue
    return {}


def is_done(planned: Planned, last: dict[str, Any], history: list[dict[str, Any]]) -> bool:
    """Whether the budget is used up and, where training looked at a part only, the best model was validated on all.

    Of a run that is published without its checkpoints the log says it.
    """
    if any(record["kind"] == "final" for record in history):
        return not last or last.get("done") is True
    if not last:
        return not planned.is_text and budget_used(planned, history)
    looked_at = planned.config.options.get("validate_chars", 0)
    size = last["identity"].get("bytes", 0) // 20  # of the validation split
    return last.get("done") is True and not 0 < looked_at < size


def budget_used(planned: Planned, history: list[dict[str, Any]]) -> bool:
    """Whether a program model was validated at the end of its epochs."""
    options, epochs = planned.config.options, planned.budget.epochs
    steps = [record["step"] for record in history if record["kind"] == "valid"]
    return bool(steps) and epochs is not None and steps[-1] >= epochs * options["programs"] / options["rows"]


def is_evaluated(run: Path, planned: Planned) -> bool:
    """Whether what the report needs is there, whole, and of this run's model (if the model is there too)."""
    try:
        if planned.is_text:
            if not (run / blocks_name("test")).exists():
                return False
            scored = blocks.read(run, "test").origin.model_sha256
        else:
            if not (run / GRID).exists():
                return False
            scored = read_report(run / GRID)["model_sha256"]
    except DataError:  # it is made again
        return False
    model = model_inside(run)
    return model is None or sha256_of(model / MODEL) == scored
