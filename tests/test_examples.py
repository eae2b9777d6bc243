"""The examples run, in quick form, and show what they say."""

from __future__ import annotations

import importlib
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from documents import ROOT
from runs import TINY, write_text

from gfrnn.cli import main
from gfrnn.models import CharLM

EXAMPLES = ROOT / "examples"
# Each is run by a test below, but for these: tests/test_export.py, tests/test_notebook.py.
ELSEWHERE = {"generate_onnx.py", "five_minutes.ipynb"}
RUN_HERE = {
    "swap_lstm.py", "forecast.py", "own_text.py", "fine_tune.sh", "two_directions.py", "packed_batches.py",
    "read_gates.py",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def example(name: str) -> Any:
    return importlib.import_module(name)


def test_every_example_is_run_and_short() -> None:
    found = {path.name: path for path in EXAMPLES.iterdir() if path.is_file()}
    assert set(found) == RUN_HERE | ELSEWHERE
    for path in found.values():
        assert path.suffix == ".ipynb" or len(path.read_text(encoding="utf-8").splitlines()) < 100


def test_swap_lstm() -> None:
    for losses in example("swap_lstm").main(150).values():
        assert len(losses) == 150 and sum(losses[-10:]) < sum(losses[:10]) / 2


def test_forecast() -> None:
    errors = example("forecast").main(150)
    assert errors["GFGRU"] < min(errors["the last sample again"], errors["a straight line"])


def test_own_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick = {**TINY, "updates": 12}
    model, shared = example("own_text").main(write_text(tmp_path), str(tmp_path / "run"), **quick)
    assert "12 updates" in capsys.readouterr().out
    again = CharLM.from_pretrained(shared)
    assert all(torch.equal(again.state_dict()[name], tensor) for name, tensor in model.state_dict().items())


def test_fine_tune(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell says what it would run, and that is run here: five starts of Python less."""
    (tmp_path / "gfrnn").write_text(f'#!/bin/sh\nprintf "%s\\0" "$@" end >> "{tmp_path}/asked"\n')
    (tmp_path / "gfrnn").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    text, run = write_text(tmp_path), str(tmp_path / "run")
    subprocess.run(["sh", str(EXAMPLES / "fine_tune.sh"), text, run, "2"], check=True)
    asked = (tmp_path / "asked").read_text().split("\0end\0")[:-1]
    assert [line.split("\0")[0] for line in asked] == ["eval", "train", "eval", "generate"]
    for line in asked:
        assert main(line.split("\0")) == 0
    assert "The " in capsys.readouterr().out and CharLM.from_pretrained(run).layer.hidden_size == 140


def test_two_directions() -> None:
    module = example("two_directions")
    output = module.main()
    assert output.shape == (7, 3, 16)
    torch.manual_seed(0)
    model = module.TwoDirections(5, 8, 2)
    x, lengths = torch.randn(7, 3, 5), torch.tensor([7, 4, 1])
    for row, length in enumerate(lengths.tolist()):
        alone = x[:length, row]
        both = torch.cat([model.forwards(alone)[0], model.backwards(alone.flip(0))[0].flip(0)], dim=1)
        torch.testing.assert_close(model(x, lengths)[:length, row], both)


def test_packed_batches() -> None:
    packed, padded, alone = example("packed_batches").main()
    assert packed.abs().sum() > 0
    torch.testing.assert_close(packed, padded)
    torch.testing.assert_close(padded, alone)


def test_read_gates(capsys: pytest.CaptureFixture[str]) -> None:
    module = example("read_gates")
    g = module.main()
    assert g.shape == (len(module.TEXT), 3, 3) and 0 <= g.min() < g.max() <= 1
    assert "to layer 3" in capsys.readouterr().out
