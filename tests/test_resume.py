"""A run that was stopped, killed or damaged ends with the same bits as one that was left alone."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from runs import outcome, run_tiny, tiny

from gfrnn.cli.progress import displays
from gfrnn.errors import Preempted
from gfrnn.tasks.text.task import TextTask
from gfrnn.training.run import train


def test_two_runs_are_equal_and_everything_carried_is_in_play(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    run_tiny(tmp_path)
    assert outcome(tmp_path / "run") == undisturbed
    names = {name.split(".")[0] for _, name in undisturbed["tensors"]}
    assert names >= {"optimizer", "state", "average", "rng", "layer", "head"}
    assert undisturbed["counters"]["done"]
    assert [r["step"] for r in undisturbed["history"] if r["kind"] == "valid"] == [5, 10, 12]
    run_tiny(tmp_path, "other", seed=2)
    assert outcome(tmp_path / "other")["best"] != undisturbed["best"]


def stop_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Send SIGTERM to this process when update `step` takes its minibatch."""
    real = TextTask.batch

    def fake(self: TextTask, *args: Any) -> Any:
        if args[1] == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(self, *args)

    monkeypatch.setattr(TextTask, "batch", fake)


@pytest.mark.parametrize("recipe", ["hutter-stacked-gru", "modern-gated-gru"])
def test_other_optimizers_resume_bit_identically_too(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_tiny(tmp_path, "whole", recipe)
    with monkeypatch.context() as patch:
        stop_at(patch, 6)
        with pytest.raises(Preempted):
            run_tiny(tmp_path, "run", recipe)
    run_tiny(tmp_path, "run", recipe)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_a_best_folder_lost_in_a_crash_is_mended(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    run_tiny(tmp_path)
    best = tmp_path / "run" / "best"
    weights = (best / "model.safetensors").read_bytes()
    (best / "model.safetensors").write_bytes(weights[:-1])
    assert run_tiny(tmp_path)["already_done"]
    assert (best / "model.safetensors").read_bytes() == weights
    assert json.loads((best / "config.json").read_text())["training"]["bpc"] == undisturbed["counters"]["best"]


def test_a_damaged_checkpoint_is_stepped_over_and_the_end_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        stop_at(patch, 7)
        with pytest.raises(Preempted):
            run_tiny(tmp_path)
    newest = tmp_path / "run/checkpoints/step-8/train.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    train(tiny(tmp_path), tmp_path / "run", progress=displays(False))
    said = capsys.readouterr().out
    assert "step-8 is not used" in said
    assert "continuing at update 6" in said
    assert outcome(tmp_path / "run") == undisturbed


def test_logging_and_validation_do_not_change_the_weights(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    run_tiny(tmp_path, validate_every=12, log_every=1, checkpoint_every=1)
    ours = outcome(tmp_path / "run")["tensors"]
    assert ours == undisturbed["tensors"]
