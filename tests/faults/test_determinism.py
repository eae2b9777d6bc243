"""The same seed gives the same bits, however often one looks at the run, and on one thread or two."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import ask
from runs import outcome, run_tiny, tiny

from gfrnn.cli import progress
from gfrnn.cli.progress import displays
from gfrnn.training.run import train

Survived = Callable[[int, int, str], None]
# What is looked at, written down and kept; nothing of it may touch what is learnt.
LOOKS: dict[str, dict[str, Any]] = {
    "nothing changed": {},
    "a record of every update": {"log_every": 1},
    "hardly any record": {"log_every": 1000},
    "a checkpoint at every update": {"checkpoint_every": 1},
    "no checkpoint on the way": {"checkpoint_every": 0},
    "a validation after every update": {"validate_every": 1},
    "one validation": {"validate_every": 12},
    "a part of the validation text": {"validate_chars": 300},
    "all checkpoints kept": {"keep": 100},
}


def test_looking_changes_nothing(tmp_path: Path, undisturbed: dict[str, Any], survived: Survived) -> None:
    for number, options in enumerate(LOOKS.values()):
        run_tiny(tmp_path, str(number), **options)
        assert outcome(tmp_path / str(number))["tensors"] == undisturbed["tensors"], options
    run_tiny(tmp_path, "other", seed=2)
    assert outcome(tmp_path / "other")["tensors"] != undisturbed["tensors"]
    survived(len(LOOKS), len(LOOKS), "ways of looking at a run, with equal bits")


def test_progress_changes_nothing(tmp_path: Path, undisturbed: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        train(tiny(tmp_path), tmp_path / "run", progress=displays(False))
    assert shown.getvalue().count("chars/s") == 13  # of every update, and at the end
    assert outcome(tmp_path / "run") == undisturbed


def trained_on(threads: int, folder: Path, name: str, recipe: str) -> dict[str, Any]:
    torch.set_num_threads(threads)
    options = {"rows": 33, "length": 50, "hidden_size": 100, "num_layers": 3}
    run_tiny(folder, name, recipe, updates=3, validate_every=3, validate_chars=200, log_every=1, **options)
    assert torch.get_num_threads() == threads
    return outcome(folder / name)


OTHERS = ("hutter-gated-lstm", "hutter-stacked-gru", "hutter-gated-tanh")


@pytest.mark.parametrize(
    "recipe", ["modern-gated-lstm", *(pytest.param(name, marks=pytest.mark.soak) for name in OTHERS)]
)
def test_two_threads(recipe: str, tmp_path: Path, survived: Survived) -> None:
    """torch may add in another order on two threads: the bits are those of two threads, the numbers those of one."""
    one, two, again = (
        ask(trained_on, threads, tmp_path, name, recipe) for threads, name in ((1, "one"), (2, "two"), (2, "again"))
    )
    assert again == two
    assert two["counters"]["best"] == pytest.approx(one["counters"]["best"], rel=1e-6)
    # Before anything was learnt: the forward pass itself is the same.
    assert two["history"][1]["nats"] == one["history"][1]["nats"]
    survived(1, 1, f"runs of {recipe} with two threads, with the bits of another")
