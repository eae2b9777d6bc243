"""`gfrnn export`: what is written computes as the model does in another runtime, and what cannot be is refused."""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from documents import ROOT

from gfrnn.cli import main
from gfrnn.export import onnx_files, torch_program
from gfrnn.export.folder import FORMATS, export
from gfrnn.export.step import STEPS, TOLERANCE, Step, check
from gfrnn.models import CharLM, Seq2Seq

onnxruntime: Any

OPTIONS: list[dict[str, Any]] = [
    {"unit": "lstm", "wiring": "gated"},
    {"unit": "gru", "wiring": "feedback", "gates_see": "own", "input_skip": False, "bias": False},
    {"unit": "tanh", "wiring": "stacked", "output": "last"},
]
# Seconds each: every day gates and a cell, and next to none of the options.
EXPORTED = [*OPTIONS[:2], pytest.param(OPTIONS[2], marks=pytest.mark.slow)]


@pytest.fixture(scope="module", autouse=True)
def _runtime() -> None:
    """Not before the first test runs: it takes seconds, and every process of the suite reads every file."""
    global onnxruntime
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")


def small(**options: Any) -> CharLM:
    return CharLM(hidden_size=5, num_layers=2, vocabulary=b" abcdeT", **options).eval()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    small().save_pretrained(tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("options", EXPORTED, ids=lambda options: options["unit"])
def test_onnx_has_any_number_of_rows_and_any_length(options: dict[str, Any], tmp_path: Path) -> None:
    model = small(**options)
    found = onnx_files.write(model, tmp_path)
    assert set(found) == {"step.onnx", "sequence.onnx"} and 0 < max(found.values()) <= TOLERANCE
    session = onnxruntime.InferenceSession(str(tmp_path / "sequence.onnx"), providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    assert names == ["symbols", *Step(model).state_names()]
    for length, rows in ((1, 1), (7, 4), (40, 2)):
        symbols = torch.randint(7, (length, rows))
        state = [np.zeros((2, rows, 5), np.float32)] * (len(names) - 1)
        logits, h, *_ = session.run(None, dict(zip(names, [symbols.numpy(), *state], strict=True)))
        with torch.no_grad():
            true, last = model(symbols)
        np.testing.assert_allclose(logits, true.numpy(), atol=1e-5)
        np.testing.assert_allclose(h, (last[0] if isinstance(last, tuple) else last).numpy(), atol=1e-5)


def test_a_torch_program_agrees_and_can_be_loaded(tmp_path: Path) -> None:
    model = small()
    assert 0 < torch_program.write(model, tmp_path)["step.pt2"] <= TOLERANCE
    step = torch.export.load(tmp_path / "step.pt2").module()
    symbol, state = torch.tensor([1, 2, 3, 4, 5]), model.layer.initial_state(5)
    torch.testing.assert_close(step(symbol, *state), Step(model)(symbol, *state), atol=1e-5, rtol=0)


def test_what_differs_is_not_written(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    faithful = torch.export.export

    def of_another(step: Step, *arguments: Any, **options: Any) -> Any:
        other = copy.deepcopy(step)
        other.model.head.bias.data += 3e-5
        return faithful(other, *arguments, **options)

    monkeypatch.setattr(torch.export, "export", of_another)
    out = tmp_path / "out"
    assert main(["export", str(run), "--format", "torch-export", "--out", str(out)]) == 3
    assert "step.pt2 differs from the model by 3.0e-05, more than 1e-05: nothing was written" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


@pytest.mark.parametrize("output", [0, 1, 2])
@pytest.mark.parametrize("error", [2e-5, torch.nan])
def test_a_difference_in_any_output_counts(output: int, error: float) -> None:
    model = small()
    step = Step(model)

    def wrong(*tensors: torch.Tensor) -> list[torch.Tensor]:
        found = list(step(*tensors))
        found[output] = found[output] + error
        return found

    assert check("step", model, step) < TOLERANCE
    with pytest.raises(ValueError, match="step differs from the model by"):
        check("step", model, wrong, STEPS)


def test_the_command_says_how_far_each_file_is(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new/out"
    words = ["export", str(run), "--format", "torch-export", "--out", str(out)]
    assert main([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["folder"] == str(out) and report["differences"]["step.pt2"] <= TOLERANCE
    assert [path.name for path in out.iterdir()] == ["step.pt2"]
    (out / "step.pt2").write_bytes(b"old")
    (out / "mine.txt").write_text("mine")
    assert main(words) == 2
    assert f"{out} exists: choose another --out, or --force" in capsys.readouterr().err
    assert (out / "step.pt2").read_bytes() == b"old"
    assert main([*words, "--force"]) == 0
    assert "agrees with the model to" in capsys.readouterr().out
    assert (out / "step.pt2").stat().st_size > 1000 and (out / "mine.txt").read_text() == "mine"


def refused(words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["export", *words]) == code
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    return captured.err


def test_what_cannot_be_exported(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "out")]
    Seq2Seq(hidden_size=4, num_layers=1).save_pretrained(tmp_path / "programs")
    for format in FORMATS:
        error = refused([str(tmp_path / "programs"), "--format", format, *out], 2, capsys)
        assert f"programs is a program model, and {format} is written for text models only" in error
    assert "neither a folder nor a model" in refused(["nowhere", *out], 3, capsys)
    assert "'tflite' is none of onnx" in refused([str(run), "--format", "tflite", *out], 2, capsys)
    assert "config.json is a file: name a folder" in refused([str(run), "--out", str(run / "config.json")], 2, capsys)
    assert "cannot be written" in refused([str(run), "--out", str(run / "config.json/out")], 3, capsys)
    found = importlib.util.find_spec
    for missing in (["onnxruntime"], ["onnx"], ["onnxscript"], ["onnx", "onnxruntime", "onnxscript"]):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, out=missing: None if name in out else found(name))
        how = f"needs {', '.join(missing)}, not installed here: pip install {' '.join(missing)}"
        assert how in refused([str(run), *out], 2, capsys)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_exists_is_refused_before_anything_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for format in FORMATS:
        assert "exists: choose another --out, or --force" in refused(
            ["nowhere", "--format", format, "--out", str(tmp_path)], 2, capsys
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("format", "dtype"), [("onnx", torch.float64), ("torch-export", torch.bfloat16)])
def test_numbers_of_other_widths_have_their_form(format: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """A folder of 16-bit numbers computes in 32, here as there."""
    model = small().to(torch.promote_types(dtype, torch.float32))
    model.save_pretrained(tmp_path / "run", dtype=dtype)
    differences = export(tmp_path / "run", format, tmp_path / "out")
    assert differences and max(differences.values()) <= (1e-14 if dtype == torch.float64 else TOLERANCE)


def test_text_is_written_without_torch(tmp_path: Path) -> None:
    model = small()
    model.head.weight.data *= 100  # as sure as a model that has learnt
    onnx_files.write(model, tmp_path)
    code = (
        "import sys; sys.path.insert(0, 'examples'); from generate_onnx import generate; "
        f"print(generate({str(tmp_path / 'step.onnx')!r}, b'Tab', 12, temperature=1e-3).hex()); "
        "assert not {'torch', 'gfrnn'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert bytes.fromhex(done.stdout) == model.generate(b"Tab", 12, temperature=0)


def test_the_example_is_short() -> None:
    lines = (ROOT / "examples/generate_onnx.py").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line.strip()]) <= 30
