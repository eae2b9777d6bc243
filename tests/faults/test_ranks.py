"""`gfrnn launch` and torchrun: one of two processes dies, the world is stopped, nothing is lost and nobody hangs."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import forked
import pytest
from ranks import run_command, together, words
from runs import outcome

from gfrnn.cli import main

APART = 40  # updates between kills
EXIT_SECONDS = 60
LAUNCH = ["gfrnn", "launch", "-n", "2", "--max-restarts"]
TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts"]


def options(updates: int) -> dict[str, Any]:
    """Dropout and everything else is in play; checkpoints are frequent, so that kills fall into saves too."""
    every = {"checkpoint_every": 7, "validate_every": 50, "log_every": 2}
    return {"updates": updates, "rows": 4, "dropout": 0.3, **every}


def line(folder: Path, name: str, updates: int) -> list[str]:
    return [*words(folder, **options(updates)), "--out", str(folder / name)]


def undisturbed(folder: Path, updates: int) -> dict[str, Any]:
    assert together(run_command, [line(folder, "whole", updates)] * 2) == [(0, "")] * 2
    return outcome(folder / "whole")


@contextmanager
def started(*module_and_words: str) -> Iterator[forked.Popen]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    command = [sys.executable, "-m", *module_and_words]
    with forked.Popen(command, stdout=forked.PIPE, stderr=forked.PIPE, text=True, env=environment) as one:
        try:
            yield one
        finally:
            one.terminate()


def wait_for_step(process: forked.Popen, run: Path, step: int) -> int:
    """Until the log is past `step`; the step it is at."""
    while True:
        assert process.poll() is None, process.communicate()[1]
        lines = (run / "metrics.jsonl").read_bytes().split(b"\n") if (run / "metrics.jsonl").exists() else [b""]
        at = json.loads(lines[-2])["step"] if len(lines) > 1 else -1
        if at >= step:
            return at
        time.sleep(0.01)


def ranks_of(process: forked.Popen, run: Path) -> tuple[int, int]:
    """Process ids of rank 0, which holds the run folder, and rank 1."""
    found = subprocess.run(["ps", "--ppid", str(process.pid), "-o", "pid="], capture_output=True, text=True).stdout
    first = int((run / "lock").read_text())
    (second,) = {int(pid) for pid in found.split()} - {first}
    return first, second


def expect_finished_after(folder: Path, kills: int, starter: list[str], *module: str) -> int:
    """How many kills of a random rank at a random moment the run came back from, to end as if nothing had been."""
    updates, chance, run = APART * (kills + 1), random.Random(kills), folder / "run"
    with started(*starter, str(kills), *module, *line(folder, "run", updates)) as process:
        for number in range(kills):
            wait_for_step(process, run, APART * number + APART // 2)
            pair = ranks_of(process, run)
            time.sleep(chance.uniform(0, 0.1))
            os.kill(pair[number % 2], signal.SIGKILL)
        _, error = process.communicate()
        assert process.returncode == 0, error
    resumed = [json.loads(text) for text in (run / "metrics.jsonl").read_text().splitlines() if '"resume"' in text]
    assert all(record["processes"] == 2 for record in resumed)
    assert outcome(run) == undisturbed(folder, updates)
    return len(resumed)


def test_a_killed_process_is_started_again(tmp_path: Path, survived: Callable[[int, int, str], None]) -> None:
    survived(expect_finished_after(tmp_path, 1, LAUNCH), 1, "kill of one of two ranks")


@pytest.mark.soak
def test_twenty_killed_processes(tmp_path: Path, survived: Callable[[int, int, str], None]) -> None:
    survived(expect_finished_after(tmp_path, 20, LAUNCH), 20, "kills of one of two ranks")


@pytest.mark.soak
def test_torchrun_by_itself_starts_a_killed_process_again(
    tmp_path: Path, survived: Callable[[int, int, str], None]
) -> None:
    survived(expect_finished_after(tmp_path, 2, TORCHRUN, "-m", "gfrnn"), 2, "kills of one of two ranks under torchrun")


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_stopped_by_many_signals(tmp_path: Path) -> None:
    updates = 80
    stopped_by_many_signals(tmp_path, updates)
    assert together(run_command, [line(tmp_path, "run", updates)] * 2) == [(0, "")] * 2
    assert outcome(tmp_path / "run") == undisturbed(tmp_path, updates)


@pytest.mark.soak
def test_stopped_by_many_signals_and_killed_without_restarts(tmp_path: Path) -> None:
    run, updates = tmp_path / "run", 240
    command = [*LAUNCH, "0", *line(tmp_path, "run", updates)]
    saved = stopped_by_many_signals(tmp_path, updates)
    with started(*command) as process:
        wait_for_step(process, run, saved + 30)
        pair = ranks_of(process, run)
        os.kill(pair[1], signal.SIGKILL)
        _, error = process.communicate(timeout=EXIT_SECONDS)
        assert process.returncode == 75
        assert "gfrnn: process 1 was killed (SIGKILL) and no restart is left of 0: the same command" in error
        assert "Traceback" not in error
        assert not any(map(alive, pair))
    assert together(run_command, [line(tmp_path, "run", updates)] * 2) == [(0, "")] * 2
    assert outcome(run) == undisturbed(tmp_path, updates)


def stopped_by_many_signals(folder: Path, updates: int) -> int:
    """Both processes are gone, and the update at which they saved."""
    run = folder / "run"
    with started(*LAUNCH, "0", *line(folder, "run", updates)) as process:
        wait_for_step(process, run, 10)
        pair = ranks_of(process, run)
        for _ in range(5):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.01)
        out, error = process.communicate()
        assert (process.returncode, out) == (75, "")
        saved = int((run / "LATEST").read_text().removeprefix("step-"))
        assert error == f"gfrnn: saved at update {saved}; the same command continues\n"
        assert not any(map(alive, pair))
    return saved


def test_launch_passes_an_error_on_and_says_it_once(tmp_path: Path) -> None:
    lines = [*words(tmp_path, data=tmp_path / "none"), "--out", str(tmp_path / "run")]
    with started(*LAUNCH, "3", *lines) as process:
        out, error = process.communicate()
    assert (process.returncode, out, error) == (3, "", f"gfrnn: {tmp_path}/none does not exist\n")


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ([], "what it starts is `train`"),
        (["-n", "2", "eval", "x"], "what it starts is `train`"),
        (["-n", "0", "train", "hutter-gated-lstm"], "-n must be at least 1, got 0"),
        (["-n", "two", "train", "hutter-gated-lstm"], "expected a whole number"),
        (["--max-restarts", "-1", "train", "hutter-gated-lstm"], "--max-restarts must be at least 0, got -1"),
        (["-n", "2", "train", "hutter-gated-lsmt"], "unknown recipe 'hutter-gated-lsmt'; did you mean"),
        (["-n", "2", "train", "hutter-gated-lstm", "--rows", "many"], "--rows: expected a whole number, got 'many'"),
    ],
)
def test_what_cannot_be_launched(asked: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", *asked]) == 2
    assert sentence in capsys.readouterr().err
