"""Checkpoints that a crash cannot tear.

A checkpoint is a folder checkpoints/step-N with model.safetensors, config.json, train.safetensors (optimizer, hidden
state, random state, averages), train.json (counters) and manifest.json (sha256 of each). It is written as step-N.tmp,
made to last, and renamed; then LATEST names it, and old ones are pruned. So at any instant the newest step-N that is
there is whole. On load the manifest decides: a damaged checkpoint is reported and the next older one is taken.
"""

import contextlib
import fcntl
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from torch import Tensor

from gfrnn.errors import DataError, UsageError
from gfrnn.progress import LOG
from gfrnn.storage.files import make_folder, rename, replace_file, sweep_parts, sync_folder
from gfrnn.storage.run_folder import (
    BEST,
    BEST_OLD,
    BEST_PART,
    CHECKPOINT_FILES,
    CHECKPOINTS,
    CONFIG,
    ENVIRONMENT,
    LATEST,
    LOCK,
    MODEL,
    MODEL_CONFIG,
    MODEL_FILES,
    TRAINING,
    TRAINING_STATE,
)
from gfrnn.storage.tensorfile import pack_json, pack_tensors, read_folder, unpack_json, unpack_tensors, write_folder

REPLACED = ".replaced.tmp"
IN_USE = "is in use by another process"
LOCK_TRIES, LOCK_WAIT = 5, 0.02


@dataclass(frozen=True)
class Snapshot:
    """Everything a run needs to go on as if it had never stopped."""

    step: int
    model: dict[str, Tensor]
    config: dict[str, Any]  # the model's, as save_pretrained writes it
    tensors: dict[str, Tensor]
    counters: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run folder."""

    def __init__(self, run: Path, keep: int = 2, report: Callable[[str], None] = LOG.warning) -> None:
        self.run, self.folder, self.keep, self.report = run, run / CHECKPOINTS, keep, report

    def steps(self) -> list[int]:
        """Committed steps, oldest first (whole or not: that is seen when they are read)."""
        if not self.folder.is_dir():
            return []
        names = (re.fullmatch(r"step-(\d+)", entry.name) for entry in self.folder.iterdir())
        return sorted(int(match[1]) for match in names if match)

    def save(self, snapshot: Snapshot, best_step: int | None = None) -> Path:
        """Commit a checkpoint; when this returns it survives a power cut. `best_step` is never pruned."""
        make_folder(self.folder)
        final = self.folder / f"step-{snapshot.step}"
        part = final.with_name(final.name + ".tmp")
        shutil.rmtree(part, ignore_errors=True)
        files = {
            MODEL: pack_tensors(snapshot.model),
            MODEL_CONFIG: pack_json(snapshot.config),
            TRAINING: pack_tensors(snapshot.tensors),
            TRAINING_STATE: pack_json({"step": snapshot.step, **snapshot.counters}),
        }
        write_folder(part, files)
        sync_folder(part)
        replaced = final.with_name(final.name + REPLACED)
        if final.exists():  # the same step again: a damaged one that was stepped over, or a validation made up for
            shutil.rmtree(replaced, ignore_errors=True)
            rename(final, replaced)
        rename(part, final)
        shutil.rmtree(replaced, ignore_errors=True)
        replace_file(self.run / LATEST, f"{final.name}\n".encode())
        self.prune(snapshot.step, best_step)
        return final

    def prune(self, newest: int, best_step: int | None) -> None:
        """Remove all but the best and the last `keep` up to `newest`: what is beyond was damaged, and stepped over."""
        steps = self.steps()
        kept = {best_step, *[step for step in steps if step <= newest][-self.keep :]}
        for step in steps:
            if step not in kept:
                # Renamed first: a half-removed folder must not look like a damaged checkpoint.
                doomed = self.folder / f"step-{step}.pruned.tmp"
                shutil.rmtree(doomed, ignore_errors=True)
                rename(self.folder / f"step-{step}", doomed)
                shutil.rmtree(doomed)

    def sweep(self) -> None:
        """Finish what an interrupted save or prune left behind; whoever calls this has the run folder for itself."""
        for path in (self.run / name for name in (LATEST, CONFIG, ENVIRONMENT) if self.run.is_dir()):
            sweep_parts(path, age=-math.inf)
        for replaced in self.folder.glob(f"step-*{REPLACED}"):
            original = replaced.with_name(replaced.name.removesuffix(REPLACED))
            if not original.exists():
                rename(replaced, original)
        for leftover in self.folder.glob("*.tmp"):
            shutil.rmtree(leftover, ignore_errors=True)

    def load(self, step: int) -> Snapshot:
        folder = self.folder / f"step-{step}"
        files = read_folder(folder, CHECKPOINT_FILES)
        counters = unpack_json(files[TRAINING_STATE], folder / TRAINING_STATE)
        if counters.get("step") != step:
            raise DataError(f"{folder / TRAINING_STATE} is damaged: it says step {counters.get('step')}")
        return Snapshot(
            step=step,
            model=unpack_tensors(files[MODEL], folder / MODEL),
            config=unpack_json(files[MODEL_CONFIG], folder / MODEL_CONFIG),
            tensors=unpack_tensors(files[TRAINING], folder / TRAINING),
            counters=counters,
        )

    def latest(self) -> Snapshot | None:
        """The newest whole checkpoint; None when there never was one. Damaged ones are reported, never loaded."""
        damaged: list[str] = []
        for step in reversed(self.steps()):
            try:
                snapshot = self.load(step)
            except DataError as error:
                damaged.append(f"checkpoint step-{step} is not used: {error}")
                continue
            for sentence in damaged:
                self.report(sentence)
            return snapshot
        if damaged:
            raise DataError(
                f"{self.folder}: every checkpoint is damaged; move the folder away to start afresh ({damaged[0]})"
            )
        return None

    def write_best(self, config: dict[str, Any], model: dict[str, Tensor]) -> None:
        """Make best/ hold this model. A crash in between is seen at the next start (`best_config`), which mends it."""
        best, part, old = (self.run / name for name in (BEST, BEST_PART, BEST_OLD))
        shutil.rmtree(part, ignore_errors=True)
        write_folder(part, dict(zip(MODEL_FILES, (pack_tensors(model), pack_json(config)), strict=True)))
        sync_folder(part)
        if best.exists():
            shutil.rmtree(old, ignore_errors=True)
            rename(best, old)
        rename(part, best)
        shutil.rmtree(old, ignore_errors=True)

    def best_config(self) -> dict[str, Any] | None:
        """The config.json in best/; None when there is no whole best/."""
        try:
            files = read_folder(self.run / BEST, MODEL_FILES)
            return unpack_json(files[MODEL_CONFIG], self.run / BEST / MODEL_CONFIG)
        except DataError:
            return None


def lock(run: Path) -> IO[bytes]:
    """Keep a second process out of the run folder for as long as the returned file is open."""
    there = next(path for path in (run, *run.absolute().parents) if path.exists())
    if not there.is_dir():
        raise UsageError(f"--out {run}: {there} is a file, not a folder")
    make_folder(run)
    file = (run / LOCK).open("ab+")
    if not taken(file):
        file.seek(0)
        owner = file.read(100).decode(errors="replace").strip() or "unknown"
        file.close()
        raise UsageError(f"{run} {IN_USE} (pid {owner})")
    file.truncate(0)
    file.write(f"{os.getpid()}\n".encode())
    file.flush()
    return file


@contextlib.contextmanager
def leaving_nothing(run: Path) -> Iterator[None]:
    """A folder that was made for a run that is refused, or stopped before it began, is gone afterwards."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            if [path.name for path in run.iterdir()] == [LOCK]:
                (run / LOCK).unlink()
                run.rmdir()
        raise


def taken(file: IO[bytes]) -> bool:
    """Whether the lock is ours. Who only looks whether it is held (campaign/runs.py) holds it for an instant."""
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_WAIT)
        else:
            return True
    return False
