"""Trains what a campaign lacks: every run in a process of its own, some at a time, then evaluates each.

All that is known of a run is in its folder, and whoever works there holds its lock. So a campaign may be stopped and
started again at any point, several may share a folder, and none trains what another trains.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from gfrnn.campaign.estimate import size_of
from gfrnn.campaign.plan import Planned
from gfrnn.campaign.runs import UNFINISHED, RunState, look
from gfrnn.errors import NO_SPACE, UsageError, explain
from gfrnn.storage.files import make_folder
from gfrnn.storage.run_folder import METRICS, STDERR
from gfrnn.training.checkpoint import IN_USE, lock
from gfrnn.training.signals import MEANING, Signals

AGAIN = "the same command continues"
POLL_SECONDS = 0.1
LOOK_SECONDS = 5.0  # between looks at runs that others are at work on
SAVING_SECONDS = 300.0  # between the signal to stop and the end of patience
TAIL = 1 << 16  # bytes of a log that are read to see how far a run is


@dataclass
class Job:
    """A process at work on a run."""

    planned: Planned
    run: Path
    phase: Literal["train", "eval"]
    process: subprocess.Popen[bytes]
    heard: int  # bytes of its standard error that were there before
    held: IO[bytes] | None  # the run's lock; `gfrnn train` takes it itself

    def progress(self) -> tuple[float, dict[str, Any]]:
        """The part of the training that is done, and the last record of the run's log."""
        if self.phase == "eval":
            return 1.0, {}
        record = last_record(self.run)
        return min(1.0, record.get("step", 0) / size_of(self.planned).updates), record

    def said(self) -> list[str]:
        """What it wrote on standard error; others that tried the same run may have written there too."""
        try:
            with (self.run / STDERR).open("rb") as file:
                file.seek(max(self.heard, file.seek(0, os.SEEK_END) - TAIL))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError as error:
            return [f"{self.run / STDERR} cannot be read: {error.strerror}"]
        return [line.strip().removeprefix("gfrnn: ") for line in lines if line.strip()]

    def why(self) -> str:
        """Why it ended, if not well."""
        code, said = self.process.returncode, self.said()
        if code == UsageError.exit_code and any(IN_USE in line for line in said):
            return IN_USE
        last = [line for line in said if IN_USE not in line][-1:]
        return obituary(code, last[0] if last else "", self.run) if code else ""


class Watch:
    """What is told while a campaign runs. Here nobody looks; the command line shows it."""

    def show(self, campaign: Campaign) -> None:
        """Called many times a second."""

    def tell(self, sentence: str) -> None:
        """Something happened."""

    def warn(self, sentence: str) -> None:
        """Something went wrong."""


@dataclass
class Campaign:
    """Runs in a folder; `run` works until each is finished, has failed, or is somebody else's."""

    folder: Path
    plans: Sequence[Planned]
    command: Sequence[str]  # what is `gfrnn` for a child
    jobs: int = 1
    threads: int = 1  # of each job
    text_sha256: str | None = None
    watch: Watch = field(default_factory=Watch)
    active: list[Job] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    foreign: dict[str, str] = field(default_factory=dict)
    pending: list[Planned] = field(default_factory=list)
    full: str = ""  # why nothing can be written any more

    def run(self) -> None:
        """A signal stops all children, waits until they have saved, and raises what stands for it."""
        self.pending, self.next_look, self.refusals = list(self.plans), 0.0, dict[str, int]()
        with Signals() as signals:
            try:
                while not signals.number:
                    self.collect()
                    self.fill()
                    if not self.active:
                        break
                    self.watch.show(self)
                    time.sleep(POLL_SECONDS)
            finally:
                stopped = self.stop()
        if signals.number:
            saved = f"{stopped} {'run was' if stopped == 1 else 'runs were'} stopped and saved"
            raise MEANING[signals.number](f"{saved}; {len(self.finished)} of {len(self.plans)} are finished, {AGAIN}")

    @property
    def left(self) -> list[str]:
        """What others are at work on."""
        return [] if self.full else [planned.name for planned in self.pending]

    def look(self, planned: Planned) -> RunState:
        return look(self.folder, planned, self.text_sha256)

    def fill(self) -> None:
        """Give every free place the next run that nobody works on."""
        if self.active and time.monotonic() < self.next_look:
            return
        for planned in list(self.pending):
            if len(self.active) >= self.jobs or self.full:
                return
            state = self.look(planned)
            if state.state == "running":
                continue
            self.pending.remove(planned)
            if state.state in UNFINISHED:
                self.start(planned, "eval" if state.state == "trained" else "train")
            elif state.state == "foreign":
                self.foreign[planned.name] = state.why
            else:
                self.finished.append(planned.name)
        self.next_look = time.monotonic() + LOOK_SECONDS

    def start(self, planned: Planned, phase: Literal["train", "eval"]) -> None:
        run, held = self.folder / planned.name, None
        words = planned.train_words(self.folder) if phase == "train" else planned.eval_words(self.folder)
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads), "PYTHONSAFEPATH": "1"}
        try:
            make_folder(run)
            held = lock(run) if phase == "eval" else None
            with (run / STDERR).open("ab") as said:
                heard = said.tell()
                process = subprocess.Popen(
                    [*self.command, *words, "--quiet"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    env=environment,
                    start_new_session=True,  # Ctrl-C reaches the parent alone, which tells its children once
                )
                job = Job(planned, run, phase, process, heard, held)
        except (UsageError, OSError) as error:
            if held is not None:
                held.close()
            self.end(planned, explain(error)[0])
            return
        self.active.append(job)

    def collect(self) -> None:
        """See which processes ended, and how."""
        for job in [job for job in self.active if job.process.poll() is not None]:
            self.active.remove(job)
            self.next_look = 0.0
            if job.held is not None:
                job.held.close()
            why = job.why()
            if why or job.phase == "eval" or not job.planned.wants_test:
                self.end(job.planned, why or self.flaw(job))
            elif not self.full:
                self.start(job.planned, "eval")

    def flaw(self, job: Job) -> str:
        """What is wrong with a run that came to its end, if anything."""
        state = self.look(job.planned)
        if state.state == "finished":
            return ""
        what = "its evaluation was not kept" if job.planned.wants_test else f"its folder is {state.state}"
        return state.why or f"{what}: {(job.said() or ['nothing was said'])[-1]}"

    def end(self, planned: Planned, why: str) -> None:
        """A run is finished, or why not."""
        name = planned.name
        if not why:
            self.finished.append(name)
            self.watch.tell(f"{name} is finished")
        elif IN_USE in why and self.refusals.get(name, 0) < 3:
            self.refusals[name] = self.refusals.get(name, 0) + 1
            self.pending.append(planned)
        elif NO_SPACE in why or os.strerror(errno.ENOSPC) in why:
            self.full = self.full or why
        elif self.look(planned).state == "diverged":
            self.finished.append(name)
            self.watch.warn(f"{name} diverged: {why}")
        else:
            self.failed[name] = why
            self.watch.warn(f"{name} failed: {why}; {self.folder / name / STDERR} has the rest")

    def stop(self) -> int:
        """End all children and wait until they have saved; how many there were."""
        for job in self.active:
            job.process.terminate()
        if self.active:
            self.watch.tell(f"stopping: {len(self.active)} of the runs are saved first")
        deadline = time.monotonic() + SAVING_SECONDS
        for job in self.active:
            try:
                job.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                job.process.kill()
                job.process.wait()
            if job.held is not None:
                job.held.close()
        stopped, self.active = len(self.active), []
        return stopped


def obituary(code: int, last_words: str, folder: Path) -> str:
    """How a process ended that did not end well.

    >>> obituary(3, "text.txt is empty", Path("."))
    'exit code 3: text.txt is empty'
    >>> obituary(-9, "", Path("."))
    'killed by SIGKILL'
    """
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    if not last_words and is_full(folder):  # then it could not even say so
        last_words = f"{NO_SPACE} ({folder})"
    return f"{how}: {last_words}" if last_words else how


def is_full(folder: Path) -> bool:
    """Whether there is no room for a line of text."""
    about = os.statvfs(folder)
    return about.f_bavail * about.f_frsize < 1 << 16


def last_record(run: Path) -> dict[str, Any]:
    """The newest whole record of training or validation in a log that somebody may be writing."""
    try:
        with (run / METRICS).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and record.get("kind") in ("train", "valid") and type(record.get("step")) is int:
            return record
    return {}
