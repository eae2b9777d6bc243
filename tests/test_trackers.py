"""Trackers are told what metrics.jsonl is told, and whatever becomes of them, the training goes on."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
from runs import outcome, run_tiny, tiny

from gfrnn.cli import main
from gfrnn.training.run import train
from gfrnn.training.runlog import read_metrics
from gfrnn.training.trackers import TRACKERS


class Fake(types.ModuleType):
    """A package that is called like wandb, and fails where it is told to."""

    def __init__(self, name: str, fails_at: str = "") -> None:
        super().__init__(name)
        self.fails_at, self.told, self.begun, self.calls = fails_at, [], {}, []  # type: ignore[var-annotated]

    def maybe_fail(self, where: str) -> None:
        self.calls.append(where)
        if where == self.fails_at:
            raise OSError("the server\nis away")

    def init(self, **options: Any) -> None:
        self.maybe_fail("init")
        self.begun = options

    def log(self, values: dict[str, float], step: int) -> None:
        self.maybe_fail("log")
        self.told.append((step, values))

    def finish(self) -> None:
        self.maybe_fail("finish")


def numbers(run: Path) -> list[tuple[int, dict[str, float]]]:
    """What metrics.jsonl has, as a tracker is told it."""
    return [
        (
            record["step"],
            {
                f"{record['kind']}/{name}": value
                for name, value in record.items()
                if type(value) in (int, float) and name != "step"
            },
        )
        for record in read_metrics(run)
    ]


def test_two_at_once_are_told_what_the_log_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = {name: Fake(name) for name in ("wandb", "trackio")}
    for name, fake in fakes.items():
        monkeypatch.setitem(sys.modules, name, fake)
    train(tiny(tmp_path), tmp_path / "run", trackers=["wandb", "trackio", "wandb"])
    for fake in fakes.values():
        assert fake.told == numbers(tmp_path / "run") and len(fake.told) > 5
        assert fake.begun["name"] == "run" and fake.begun["config"]["hidden_size"] == 6
        assert fake.calls.count("init") == fake.calls.count("finish") == 1
    assert fakes["wandb"].begun["mode"] == "offline"
    assert {"train/nats", "valid/bpc"} <= {name for _, values in fakes["wandb"].told for name in values}
    train(tiny(tmp_path), tmp_path / "run", trackers=["wandb"])
    assert fakes["wandb"].calls.count("init") == 1


@pytest.mark.parametrize("fails_at", ["init", "log", "finish"])
def test_one_that_fails_says_so_once_and_changes_nothing(
    fails_at: str,
    tmp_path: Path,
    undisturbed: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    told: list[str],
) -> None:
    fake = Fake("wandb", fails_at)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    train(tiny(tmp_path), tmp_path / "run", trackers=["wandb"])
    said = [words for words in told if "--log" in words]
    assert said == ["--log wandb failed (OSError: the server is away): training goes on without it"]
    assert fake.calls.count(fails_at) == 1
    assert outcome(tmp_path / "run") == undisturbed


@pytest.mark.parametrize("name", TRACKERS)
def test_one_that_is_missing_says_how_to_get_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (name, f"torch.utils.{name}"):
        monkeypatch.setitem(sys.modules, module, None)
    config = tiny(tmp_path)
    words = ["--data", config.options["data"], "--hidden-size", "4", "--rows", "2", "--length", "5", "--updates", "4"]
    words += ["--log", name, "--out", str(tmp_path / "run"), "--quiet"]
    assert main(["train", "modern-gated-lstm", *words]) == 0
    assert capsys.readouterr().err.count(f"pip install {name} (training goes on without it)") == 1
    assert main(["train", "modern-gated-lstm", "--log", "wandbb"]) == 2
    assert "did you mean 'wandb'" in capsys.readouterr().err


def test_tensorboard_has_the_curves(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs tensorboard, the extra [tensorboard]")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(tiny(tmp_path), tmp_path / "run", trackers=["tensorboard"])
    events = EventAccumulator(str(tmp_path / "run/tensorboard"))
    events.Reload()
    expected = [(step, values["valid/bpc"]) for step, values in numbers(tmp_path / "run") if "valid/bpc" in values]
    found = [(event.step, event.value) for event in events.Scalars("valid/bpc")]
    assert [step for step, _ in found] == [step for step, _ in expected]
    assert [value for _, value in found] == pytest.approx([value for _, value in expected])


def test_without_trackers_none_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("wandb", "trackio", "tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)
    run_tiny(tmp_path, updates=2)
    assert not (tmp_path / "run/tensorboard").exists()
