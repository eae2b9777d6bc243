"""The demo: two models, a table, samples, curves; and again without training twice."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path

import pytest

from gfrnn import recipes
from gfrnn.cli import main
from gfrnn.training.loop import Trainer


@pytest.fixture(autouse=True)
def small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    real = recipes.find

    def small(name: str) -> recipes.Recipe:
        recipe = real(name)
        return dataclasses.replace(recipe, config=recipe.config.replace(hidden_size=4, num_layers=2))

    monkeypatch.setattr(recipes, "find", small)


def test_the_demo_compares_two_models_and_goes_on_where_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["demo", "--minutes", "0.001", "--out", str(tmp_path / "demo")]
    assert main(words) == 0
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines() if line.startswith("modern-")]
    table = {row[0]: row for row in rows if len(row) == 6}
    assert sorted(table) == ["modern-gated-lstm", "modern-stacked-lstm"]
    assert all(4 < float(row[2]) < 9 for row in table.values())
    assert shown.count("<title>") >= 2
    assert "not comparable with the paper's numbers" in shown
    assert {path.name for path in (tmp_path / "demo").iterdir()} == {*table, "curves.svg", "curves.png"}
    trained = {path: path.read_bytes() for path in (tmp_path / "demo").rglob("*.safetensors")}
    assert main(words) == 0
    assert "continuing" not in capsys.readouterr().out
    assert {path: path.read_bytes() for path in (tmp_path / "demo").rglob("*.safetensors")} == trained


def test_an_interrupted_demo_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, updates = Trainer.update, list[int]()

    def interrupted(trainer: Trainer) -> None:
        whole(trainer)
        updates.append(trainer.step)
        if len(updates) == 5:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Trainer, "update", interrupted)
    monkeypatch.setattr(Trainer, "seconds", lambda trainer: 6.0 * trainer.step)  # ten updates a minute on any machine
    words = ["demo", "--minutes", "1", "--out", str(tmp_path / "demo")]
    assert main(words) == 130
    assert main(words) == 0
    assert "continuing at update 5" in capsys.readouterr().out
    assert updates == [*range(1, 11), *range(1, 11)]
