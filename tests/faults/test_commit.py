"""A crash before, in and after every write, fsync, rename and removal; a power cut at the same moments."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from disk import Crash, PowerCut, crash_at
from harness import whole_checkpoint
from runs import outcome, tiny

from gfrnn.training.checkpoint import Checkpoints, Snapshot
from gfrnn.training.run import train

Survived = Callable[[int, int, str], None]
OPTIONS: dict[str, Any] = {"updates": 4, "validate_every": 2, "checkpoint_every": 1, "validate_chars": 500}


def snapshot(step: int) -> Snapshot:
    weights = {"w": torch.full((3,), float(step)), "b": torch.arange(step + 1)}
    return Snapshot(step, weights, {"architecture": "X"}, {"rng": torch.get_rng_state()}, {"best": 0.1 + step})


def crashes(patch: pytest.MonkeyPatch, moment: int, action: Callable[[], Any]) -> tuple[bool, list[str]]:
    """Whether `action` was cut short, and the moments that passed."""
    with patch.context() as inner:
        passed = crash_at(inner, moment)
        try:
            action()
        except Crash:
            return True, passed
    return False, passed


def test_a_crash_at_any_moment_of_a_save_leaves_the_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: Survived
) -> None:
    moment, crashed = 0, True
    while crashed:
        run = tmp_path / str(moment)
        checkpoints = Checkpoints(run, keep=1)
        for step in (1, 2):
            checkpoints.save(snapshot(step))
        crashed, passed = crashes(monkeypatch, moment, lambda save=checkpoints.save: save(snapshot(3)))
        assert whole_checkpoint(run) == (3 if "before rename" in passed else 2), passed
        again = Checkpoints(run, keep=1)
        again.save(snapshot(4))
        assert again.steps() == [4]
        assert not list(run.rglob("*.tmp"))
        moment += crashed
    assert {"before write", "half-way through write", "before fsync", "before replace", "half-way through rmtree"} <= {
        *passed
    }
    survived(moment, moment, "crashes of a save, at every moment of it")


def test_a_crash_while_a_step_is_saved_again_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: Survived
) -> None:
    moment, crashed = 0, True
    while crashed:
        run = tmp_path / str(moment)
        Checkpoints(run).save(snapshot(3))
        crashed, _ = crashes(monkeypatch, moment, lambda run=run: Checkpoints(run).save(snapshot(3)))
        assert whole_checkpoint(run) == 3
        moment += crashed
    survived(moment, moment, "crashes of a save of the same step again")


def test_what_was_stepped_over_as_damaged_never_outlives_what_is_whole(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    for step in (4, 6, 8):
        checkpoints.save(snapshot(step))
    checkpoints = Checkpoints(tmp_path, keep=1, report=lambda sentence: None)
    for step in (6, 8):
        (tmp_path / f"checkpoints/step-{step}/train.json").write_text("{}")
    found = checkpoints.latest()
    assert found is not None and found.step == 4
    checkpoints.save(snapshot(5))
    assert whole_checkpoint(tmp_path) == 5


def test_best_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: Survived) -> None:
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.best_config() is None
    checkpoints.write_best({"n": 1}, {"w": torch.ones(1)})
    moment, crashed = 0, True
    while crashed:
        crashed, _ = crashes(monkeypatch, moment, lambda: checkpoints.write_best({"n": 2}, {"w": torch.ones(1)}))
        # Either name holds a whole model at any time.
        assert any((tmp_path / name / "manifest.json").exists() for name in ("best", "best.old"))
        moment += crashed
    assert checkpoints.best_config() == {"n": 2}
    survived(moment, moment, "crashes of a change of best/")


def watch_commits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lists the steps whose save has returned."""
    commits = [-1]
    real = Checkpoints.save

    def save(self: Checkpoints, snapshot: Snapshot, best_step: int | None = None) -> Path:
        path = real(self, snapshot, best_step)
        commits.append(snapshot.step)
        return path

    monkeypatch.setattr(Checkpoints, "save", save)
    return commits


@pytest.mark.parametrize("share", [0.03, pytest.param(1.0, marks=pytest.mark.soak)])
def test_training_crashed_at_any_moment_ends_the_same(
    share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: Survived
) -> None:
    """Of all the moments of a short training a random share (the soak: all)."""
    config = tiny(tmp_path, **OPTIONS)
    commits = watch_commits(monkeypatch)
    _, passed = crashes(monkeypatch, -1, lambda: train(config, tmp_path / "whole"))
    whole = outcome(tmp_path / "whole")
    moments = sorted(random.Random(0).sample(range(len(passed)), round(share * len(passed))))
    for moment in moments:
        run = tmp_path / str(moment)
        del commits[1:]
        crashed, _ = crashes(monkeypatch, moment, lambda run=run: train(config, run))
        assert crashed
        assert whole_checkpoint(run) >= commits[-1], passed[moment]
        crashes(monkeypatch, -1, lambda run=run: train(config, run))
        assert outcome(run) == whole, passed[moment]
    survived(len(moments), len(moments), f"crashes of a training, of {len(passed)} moments, all with equal bits")


@pytest.mark.parametrize("share", [0.02, pytest.param(0.5, marks=pytest.mark.soak)])
def test_a_power_cut_at_any_moment_leaves_the_last_commit(
    share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: Survived
) -> None:
    """What was never fsynced is lost: every commit is still there at every moment, and a share of them is continued."""
    config, root = tiny(tmp_path, **OPTIONS), tmp_path / "disk"
    root.mkdir()
    commits, cuts = watch_commits(monkeypatch), []
    chance = random.Random(0)

    def cut(number: int, name: str) -> None:
        left = tmp_path / f"left{number}"
        power.left(left)
        cuts.append((left / "run", commits[-1], name))

    with monkeypatch.context() as patch:
        power = PowerCut(root, patch, cut)
        train(config, root / "run")
        power.close()
    whole = outcome(root / "run")
    for run, commit, name in cuts:
        assert whole_checkpoint(run) >= commit, name
    for run, _, name in chance.sample(cuts, round(share * len(cuts))):
        crashes(monkeypatch, -1, lambda run=run: train(config, run))
        assert outcome(run) == whole, name
    survived(len(cuts), len(cuts), f"power cuts in a training, {round(share * len(cuts))} of them continued")
