"""NaN and infinity, put wherever a number lives, never reach a checkpoint; gradients far too large do no harm."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import outcome, run_tiny
from torch import Tensor

from gfrnn.errors import NonFinite
from gfrnn.tasks.text.task import TextTask
from gfrnn.training import loop
from gfrnn.training.checkpoint import Checkpoints, Snapshot
from gfrnn.training.loop import Trainer

VALUES = (math.nan, math.inf, -math.inf)
HIT = 4  # the update that is hit
SHORT: dict[str, Any] = {"updates": 7, "checkpoint_every": 3, "validate_every": 7}
RECIPES = ("modern-gated-lstm", "hutter-gated-lstm")  # Adam and averaged weights; RMSProp and neither


def poison_state(trainer: Trainer, value: float) -> None:
    for part in trainer.state:
        part[:, 0] = value


def poison_output(trainer: Trainer, value: float) -> None:
    def hook(layer: Any, args: Any, result: Any) -> Any:
        handle.remove()
        return result[0] * value, *result[1:]

    handle = trainer.model.layer.register_forward_hook(hook)


def poison_gradient(trainer: Trainer, value: float) -> None:
    def hook(gradient: Tensor) -> Tensor:
        handle.remove()
        return gradient * value

    handle = trainer.parameters[0].register_hook(hook)


def poison_loss(trainer: Trainer, value: float) -> None:
    real = trainer.task.loss

    def loss(*args: Any) -> Any:
        del trainer.task.loss
        nats, count, state = real(*args)
        return nats * value, count, state

    trainer.task.loss = loss


def poison_weight(trainer: Trainer, value: float) -> None:
    with torch.no_grad():
        trainer.parameters[-1][0] = value


def poison_optimizer(trainer: Trainer, value: float) -> None:
    state = trainer.optimizer.state[trainer.parameters[0]]
    next(t for t in state.values() if t.dim())[0] = value


def poison_average(trainer: Trainer, value: float) -> None:
    for tensor in trainer.averages.tensors.values():
        tensor[..., 0] = value


def hit(patch: pytest.MonkeyPatch, poison: Callable[[Trainer, float], None], value: float, at: int = HIT) -> None:
    real = Trainer.update

    def update(self: Trainer) -> None:
        if self.step == at:
            poison(self, value)
        real(self)

    patch.setattr(Trainer, "update", update)


def watch_saves(patch: pytest.MonkeyPatch) -> list[int]:
    """Fails as soon as anything that is not finite is to be saved; lists the saves."""
    saves: list[int] = []
    real = Checkpoints.save

    def save(self: Checkpoints, snapshot: Snapshot, best_step: int | None = None) -> Path:
        for name, tensor in (*snapshot.model.items(), *snapshot.tensors.items()):
            assert bool(tensor.isfinite().all()), name
        saves.append(snapshot.step)
        return real(self, snapshot, best_step)

    patch.setattr(Checkpoints, "save", save)
    return saves


@pytest.mark.parametrize("poison", [poison_state, poison_output, poison_gradient, poison_loss])
def test_what_passes_is_skipped(
    poison: Callable[[Trainer, float], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    survived: Callable[[int, int, str], None],
) -> None:
    """One update is lost, its hidden state forgotten; training goes on."""
    for recipe in RECIPES:
        for value in VALUES:
            with monkeypatch.context() as patch:
                hit(patch, poison, value)
                saves = watch_saves(patch)
                options = {"updates": 8, "reset_every": 0, "validate_every": 8}
                result = run_tiny(tmp_path, f"{recipe}{value}", recipe, **options)
            assert (result["skipped"], result["updates"]) == (1, 8)
            assert saves[-1] == 8
    total = len(RECIPES) * len(VALUES)
    survived(total, total, f"values that are not finite, by {poison.__name__}")


@pytest.mark.parametrize("poison", [poison_weight, poison_optimizer, poison_average])
def test_what_stays_ends_the_run_and_the_checkpoint_before_it_goes_on(
    poison: Callable[[Trainer, float], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    survived: Callable[[int, int, str], None],
) -> None:
    """As a bit that flips in memory would."""
    recipes = RECIPES[: 1 if poison is poison_average else 2]
    for recipe in recipes:
        run_tiny(tmp_path, recipe, recipe, **SHORT)
        whole = outcome(tmp_path / recipe)
        for value in VALUES:
            run = f"{recipe}{value}"
            with monkeypatch.context() as patch:
                hit(patch, poison, value)
                saves = watch_saves(patch)
                with pytest.raises(NonFinite, match=r"not finite|is nan"):
                    run_tiny(tmp_path, run, recipe, **SHORT)
            assert saves[-1] == 3
            run_tiny(tmp_path, run, recipe, **SHORT)
            assert outcome(tmp_path / run) == whole
    total = len(recipes) * len(VALUES)
    survived(total, total, f"values that are not finite, by {poison.__name__}, continued with equal bits")


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("at", [HIT, 30])
def test_a_gradient_a_million_times_too_large(
    recipe: str, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: Callable[[int, int, str], None]
) -> None:
    """When enough is known of gradients it is skipped; before, it is survived."""
    hit(monkeypatch, lambda trainer, factor: poison_loss(trainer, factor), 1e6, at)
    saves = watch_saves(monkeypatch)
    result = run_tiny(tmp_path, "run", recipe, updates=35, validate_every=35, checkpoint_every=5)
    assert (result["skipped"], result["halvings"]) == ((1, 1) if at == 30 else (0, 0))
    assert saves[-1] == 35
    assert result["bpc"] < 12
    survived(1, 1, f"gradients a million times too large, of {recipe} at update {at}")


def test_an_input_that_never_becomes_finite_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = TextTask.loss
    monkeypatch.setattr(TextTask, "loss", lambda *args: (real(*args)[0] * math.nan, *real(*args)[1:]))
    saves = watch_saves(monkeypatch)
    with pytest.raises(NonFinite, match=f"not finite {loop.BAD_UPDATES} times in a row"):
        run_tiny(tmp_path, updates=100, validate_every=100)
    assert saves[0] == 0
