"""Checkpoints that a crash cannot tear.

A checkpoint is a folder checkpoints/step-N with model.safetensors, config.json, train.safetensors (optimizer, hidden
state, random state, averages), train.json (counters) and manifest.json (sha256 of each). It is written as step-N.tmp,
made to last, and renamed; then LATEST names it, and old ones are pruned. So at any instant the newest step-N that is
there is whole. On load the manifest decides: a damaged checkpoint is reported and the next older one is taken.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from torch import Tensor

from gfrnn.errors import DataError, UsageError
from gfrnn.files import make_folder, rename, replace_file, sync_folder
from gfrnn.tensorfile import pack_json, pack_tensors, read_folder, unpack_json, unpack_tensors, write_folder

FILES = ("model.safetensors", "config.json", "train.safetensors", "train.json")
MODEL_FILES = FILES[:2]
REPLACED = ".replaced.tmp"


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

    def __init__(self, run: Path, keep: int = 2, report: Callable[[str], None] = print) -> None:
        self.run, self.folder, self.keep, self.report = run, run / "checkpoints", keep, report

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
            "model.safetensors": pack_tensors(snapshot.model),
            "config.json": pack_json(snapshot.config),
            "train.safetensors": pack_tensors(snapshot.tensors),
            "train.json": pack_json({"step": snapshot.step, **snapshot.counters}),
        }
        write_folder(part, files)
        sync_folder(part)
        replaced = final.with_name(final.name + REPLACED)
        if final.exists():  # the same step again: a damaged one that was stepped over, or a validation made up for
            shutil.rmtree(replaced, ignore_errors=True)
            rename(final, replaced)
        rename(part, final)
        shutil.rmtree(replaced, ignore_errors=True)
        replace_file(self.run / "LATEST", f"{final.name}\n".encode())
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
        """Finish what an interrupted save or prune left behind."""
        for replaced in self.folder.glob(f"step-*{REPLACED}"):
            original = replaced.with_name(replaced.name.removesuffix(REPLACED))
            if not original.exists():
                rename(replaced, original)
        for leftover in self.folder.glob("*.tmp"):
            shutil.rmtree(leftover, ignore_errors=True)

    def load(self, step: int) -> Snapshot:
        folder = self.folder / f"step-{step}"
        files = read_folder(folder, FILES)
        counters = unpack_json(files["train.json"], folder / "train.json")
        if counters.get("step") != step:
            raise DataError(f"{folder / 'train.json'} is damaged: it says step {counters.get('step')}")
        return Snapshot(
            step=step,
            model=unpack_tensors(files["model.safetensors"], folder / "model.safetensors"),
            config=unpack_json(files["config.json"], folder / "config.json"),
            tensors=unpack_tensors(files["train.safetensors"], folder / "train.safetensors"),
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
        best, part, old = (self.run / name for name in ("best", "best.tmp", "best.old"))
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
            files = read_folder(self.run / "best", MODEL_FILES)
            return unpack_json(files["config.json"], self.run / "best" / "config.json")
        except DataError:
            return None


def lock(run: Path) -> IO[bytes]:
    """Keep a second process out of the run folder for as long as the returned file is open."""
    there = next(path for path in (run, *run.absolute().parents) if path.exists())
    if not there.is_dir():
        raise UsageError(f"--out {run}: {there} is a file, not a folder")
    make_folder(run)
    file = (run / "lock").open("ab+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        owner = file.read(100).decode(errors="replace").strip() or "unknown"
        file.close()
        raise UsageError(f"{run} is in use by another process (pid {owner})") from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n".encode())
    file.flush()
    return file
