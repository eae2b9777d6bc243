"""--precision: in training, evaluation and generation; what is stored, kept, said and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from gfrnn.bench.tolerance import error
from gfrnn.cli import main
from gfrnn.errors import UsageError
from gfrnn.models import CharLM, generation
from gfrnn.models.precision import precisely, resolve
from gfrnn.ops import cpu
from gfrnn.training import loop

Capture = pytest.CaptureFixture[str]
TINY = "--data excerpt --hidden-size 6 --num-layers 2 --rows 2 --length 5 --validate-chars 30 --validate-every 2"


def train(out: Path, *options: str, updates: int = 2, code: int = 0) -> None:
    words = f"train modern-gated-gru {TINY} --updates {updates} --quiet --out {out}".split()
    assert main([*words, *options]) == code


def stored(out: Path) -> str:
    return str(yaml.safe_load((out / "config.yaml").read_text())["run"]["precision"])


def weights(out: Path) -> dict[str, torch.Tensor]:
    return CharLM.from_pretrained(out).state_dict()


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU that has the instruction."""
    monkeypatch.setattr(cpu, "multiplies_bfloat16", lambda: True)


def test_training_in_bfloat16_is_another_training_in_float32(tmp_path: Path) -> None:
    train(tmp_path / "plain", "--precision", "float32")
    train(tmp_path / "rounded", "--precision", "bfloat16")
    plain, rounded = weights(tmp_path / "plain"), weights(tmp_path / "rounded")
    assert all(tensor.dtype == torch.float32 for tensor in rounded.values())
    assert any(not torch.equal(plain[name], rounded[name]) for name in plain)
    assert all(error(rounded[name], plain[name]) < 0.01 for name in plain)
    assert (stored(tmp_path / "plain"), stored(tmp_path / "rounded")) == ("float32", "bfloat16")
    training = json.loads((tmp_path / "rounded/best/config.json").read_text())["training"]
    assert training["precision"] == "bfloat16"


def test_auto_is_resolved_once_and_kept(tmp_path: Path, fast: None, monkeypatch: pytest.MonkeyPatch) -> None:
    train(tmp_path, "--precision", "auto", "--patience", "1")
    assert stored(tmp_path) == "bfloat16"
    monkeypatch.setattr(cpu, "multiplies_bfloat16", lambda: False)
    assert resolve("auto") == "float32"
    train(tmp_path, "--precision", "auto", "--patience", "1")
    train(tmp_path)
    assert stored(tmp_path) == "bfloat16"


def test_auto_is_float32_beyond_the_cpu(fast: None) -> None:
    assert [resolve("auto"), resolve("auto", "cuda"), resolve("bfloat16", "cuda")] == [
        "bfloat16",
        "float32",
        "bfloat16",
    ]


def test_a_run_goes_on_in_its_own_precision_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "update", stop_after(2, loop.Trainer.update))
        train(tmp_path, "--precision", "bfloat16", "--checkpoint-every", "1", updates=4, code=130)
    train(tmp_path, "--precision", "float32", updates=4)
    assert stored(tmp_path) == "float32"
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [r["precision"] for r in records if r["kind"] in ("start", "resume")] == ["bfloat16", "float32"]


def stop_after(count: int, update: Any) -> Any:
    def interrupted(self: loop.Trainer) -> None:
        if self.step == count:
            raise KeyboardInterrupt
        update(self)

    return interrupted


def test_evaluation_is_as_trained_unless_asked(tmp_path: Path, capsys: Capture) -> None:
    train(tmp_path, "--precision", "bfloat16")
    capsys.readouterr()
    reports = {}
    for asked in ((), ("--precision", "bfloat16"), ("--precision", "float32")):
        assert main(["eval", str(tmp_path), "--split", "valid", "--json", *asked]) == 0
        printed = capsys.readouterr()
        reports[asked] = json.loads(printed.out)
        assert ("was trained with products in bfloat16; here in float32" in printed.err) == ("float32" in asked)
    own, same, other = reports.values()
    assert own["bpc"] == same["bpc"] != other["bpc"]
    assert (own["precision"], other["precision"]) == ("bfloat16", "float32")
    assert abs(own["bpc"] - other["bpc"]) < 0.01


def test_text_is_drawn_by_the_fast_loop_unless_asked(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path, "--precision", "bfloat16")
    capsys.readouterr()
    drawn = []
    monkeypatch.setattr(generation, "in_one_loop", watched(generation.in_one_loop, drawn))
    for asked, by_loop in (((), 1), (("--precision", "bfloat16"), 0), (("--precision", "float32"), 1)):
        drawn.clear()
        assert main(["generate", str(tmp_path), "--chars", "3", "--seed", "1", "--json", *asked]) == 0
        printed = capsys.readouterr()
        assert (json.loads(printed.out)[0]["prompt"], printed.err) == ("<page>\n", "")
        assert len(drawn) == by_loop


def watched(function: Any, calls: list[Any]) -> Any:
    def called(*arguments: Any) -> Any:
        calls.append(arguments)
        return function(*arguments)

    return called


def test_text_in_bfloat16_is_drawn_from_the_model_that_reads_in_it() -> None:
    model = CharLM("lstm", hidden_size=12, num_layers=2)
    with precisely("bfloat16", model):
        text = model.generate("a", 6, temperature=0)
        ids = torch.from_numpy(model.vocabulary.encode(b"a" + text).astype("int64"))[:, None]
        logits, _ = model(ids[:-1])
    assert logits.argmax(-1).flatten().tolist() == ids[1:].flatten().tolist()


def test_what_cannot_be_is_refused_in_a_sentence(tmp_path: Path, capsys: Capture) -> None:
    model = CharLM(hidden_size=4, num_layers=2, dtype=torch.float64)
    model.save_pretrained(tmp_path)
    assert CharLM.from_pretrained(tmp_path).head.weight.dtype == torch.float64
    for verb in (["generate", str(tmp_path), "--chars", "3"], ["eval", str(tmp_path), "--data", "excerpt", "--quiet"]):
        assert main([*verb, "--precision", "bfloat16"]) == 2
        said = "--precision bfloat16 is for models in float32, and this one is in float64"
        assert capsys.readouterr().err == f"gfrnn: {said}\n"
    with pytest.raises(UsageError, match="is for the CPU, and the model is on meta: say --precision float32"):
        precisely("bfloat16", torch.nn.Linear(1, 1, device="meta"))
    with pytest.raises(ValueError, match="a precision is float32 or bfloat16, not 'auto'"):
        precisely("auto", torch.nn.Linear(1, 1))
    assert main(["train", "modern-gated-gru", "--precision", "half"]) == 2
