"""SIGTERM, SIGINT and SIGUSR1 in update, validation and save, twice in a row: saved, and continued bit for bit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runs import outcome, run_tiny

from gfrnn.errors import GfrnnError, Interrupted, Preempted
from gfrnn.tasks.text.task import TextTask
from gfrnn.training import checkpoint

RAISED = {signal.SIGTERM: Preempted, signal.SIGUSR1: Preempted, signal.SIGINT: Interrupted}
# where: the object and method to interrupt, and whether this call is the one
PLACES: dict[str, tuple[Any, str, Callable[[tuple[Any, ...]], bool]]] = {
    "first update": (TextTask, "batch", lambda args: args[2] == 0),
    "update": (TextTask, "batch", lambda args: args[2] == 7),
    "last update": (TextTask, "batch", lambda args: args[2] == 11),
    "validation": (TextTask, "validate", lambda args: True),
    "save": (checkpoint, "write_folder", lambda args: args[0].name == "step-6.tmp"),
    "save of the best": (checkpoint, "write_folder", lambda args: args[0].name == "best.tmp"),
}
SAVED = {"first update": 1, "update": 8, "last update": 12, "validation": 5, "save": 6, "save of the best": 5}


def interrupt(patch: pytest.MonkeyPatch, place: str, numbers: tuple[int, int]) -> None:
    owner, name, here = PLACES[place]
    real = getattr(owner, name)

    def fake(*args: Any, **kwargs: Any) -> Any:
        if here(args):
            for number in numbers:
                os.kill(os.getpid(), number)
        return real(*args, **kwargs)

    patch.setattr(owner, name, fake)


@pytest.mark.parametrize("place", PLACES)
def test_two_signals_in_a_row(
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: dict[str, Any],
    survived: Callable[[int, int, str], None],
) -> None:
    for number, raised in RAISED.items():
        run = f"run{number}"
        with monkeypatch.context() as patch:
            interrupt(patch, place, (number, number))
            with pytest.raises(raised, match=rf"saved at update {SAVED[place]}; the same command continues"):
                run_tiny(tmp_path, run)
        assert (tmp_path / run / "LATEST").read_text() == f"step-{SAVED[place]}\n"
        run_tiny(tmp_path, run)
        assert outcome(tmp_path / run) == undisturbed
    survived(len(RAISED), len(RAISED), f"kinds of signals, twice in a row, in the {place}")


def test_of_two_different_signals_the_last_says_how_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: dict[str, Any]
) -> None:
    endings: list[type[GfrnnError]] = []
    for pair in ((signal.SIGTERM, signal.SIGINT), (signal.SIGINT, signal.SIGUSR1)):
        with monkeypatch.context() as patch:
            interrupt(patch, "update", pair)
            with pytest.raises(GfrnnError, match="saved at update 8") as raised:
                run_tiny(tmp_path, str(pair[0]))
        endings.append(raised.type)
        run_tiny(tmp_path, str(pair[0]))
        assert outcome(tmp_path / str(pair[0])) == undisturbed
    assert endings == [Interrupted, Preempted]
