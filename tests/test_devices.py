"""Models follow their device, and so does training: shown on a device that is not there, see far.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from far import FAR, far
from ranks import command
from runs import outcome, run_tiny, tiny

from gfrnn import GFGRU, GFLSTM, GFRNN
from gfrnn.cli import main
from gfrnn.errors import Preempted, UsageError
from gfrnn.models import CharLM, Seq2Seq
from gfrnn.models.generation import Sampling, stream
from gfrnn.models.program_batch import collate
from gfrnn.ops import cpu
from gfrnn.recipes import find
from gfrnn.tasks.programs.evaluation import measure
from gfrnn.tasks.programs.generator import Settings
from gfrnn.tasks.programs.generator import stream as programs
from gfrnn.tasks.text import corpus
from gfrnn.tasks.text.score import score_text
from gfrnn.tasks.world import World
from gfrnn.training import run as training
from gfrnn.training.config import Config
from gfrnn.training.run import train
from gfrnn.training.runlog import read_metrics

TEXT = b"  <page>\n    <title>Anarchism</title>\n"
SOURCES = ["print((3+4))", "print(7)"]


def refusals() -> list[str]:
    """What the stand-in says to tensors of two devices."""
    there, here = torch.ones(3, device=FAR), torch.ones(3)
    said = []
    for meet in (lambda: there + here, lambda: torch.cat([here, there]), lambda: here.index_select(0, there.long())):
        try:
            meet()
        except RuntimeError as error:
            said.append(str(error))
    return said


def test_the_stand_in_lets_no_tensor_meet_one_of_the_cpu() -> None:
    said = far(refusals)
    assert len(said) == 3
    assert all("tensors on two devices, far:0 and cpu" in sentence for sentence in said)


def of_layers() -> list[tuple[str, float]]:
    """How far outputs and gradients there are from those on the CPU, of every unit, wiring and general backend."""
    found = []
    for make in (GFRNN, GFGRU, GFLSTM):
        for wiring in ("gated", "feedback", "stacked"):
            for backend in ("auto", "reference"):
                layer = make(4, 3, 2, wiring=wiring, input_skip=True, output="all")
                x, lengths = torch.randn(5, 2, 4), torch.tensor([5, 3])
                results = []
                for place in ("cpu", FAR):
                    layer.to(place).backend = "auto" if place == "cpu" else backend
                    layer.zero_grad()
                    output, _, gates = layer(x.to(place), lengths=lengths.to(place), return_gates=True)
                    (output.sum() + gates.square().sum()).backward()
                    step = layer.step(x[0].to(place), layer.initial_state(2))[0]
                    tensors = [output, gates, step, *(p.grad for p in layer.parameters())]
                    results.append([t.detach().cpu() for t in tensors])
                worst = max(float((a - b).abs().max()) for a, b in zip(*results, strict=True))
                found.append((f"{make.__name__} {wiring} {backend}", worst))
    return found


def test_layers() -> None:
    found = far(of_layers)
    assert len(found) == 18
    assert [name for name, worst in found if worst > 1e-5] == []


def of_char_lm(place: str) -> dict[str, Any]:
    torch.manual_seed(1)
    model = CharLM(hidden_size=8, num_layers=2).to(place)
    model.layer.backend = "manual"
    ids = model.vocabulary.encode(TEXT)
    drawn = stream(model, b"The ", 12, Sampling(0.8, top_k=40, top_p=0.9, seed=3), samples=3)
    return {
        "device": str(model.device),
        "score": model.score(TEXT).tolist(),
        "text": model.generate(b"The ", 40, seed=5),
        "samples": list(drawn),
        "bpc": [score_text(model, ids, streams, warmup=9).bpc for streams in (1, 4)],
        "half": model.as_half().score(TEXT).tolist(),
    }


def test_a_character_model_scores_and_writes_where_it_is() -> None:
    here, there = of_char_lm("cpu"), far(of_char_lm, FAR)
    assert (here.pop("device"), there.pop("device")) == ("cpu", FAR)
    for name in ("score", "half"):  # on a CPU a score is computed in float64
        assert there.pop(name) == pytest.approx(here.pop(name), abs=1e-5)
    assert there.pop("bpc") == pytest.approx(here.pop("bpc"), rel=1e-6)  # on a CPU the softmax is the op's
    assert here == there


def of_seq2seq(place: str) -> dict[str, Any]:
    torch.manual_seed(1)
    model = Seq2Seq("gru", hidden_size=8, num_layers=2).to(place)
    for layer in (model.encoder, model.decoder):
        layer.backend = "manual"
    some = list(programs(0, 5, Settings(length=3, nesting=2), "validation"))
    loss = model.loss(collate(some).to(model.device)).sum()
    loss.backward()
    return {
        "answers": [model.answer(source) for source in SOURCES],
        "beam": model.beam(SOURCES[0], width=3),
        "measured": measure(model, some, rows=2),
        "loss": float(loss.detach()),
        "gradient": float(sum(p.grad.square().sum() for p in model.parameters() if p.grad is not None)),
    }


def test_a_program_model_answers_where_it_is() -> None:
    here, there = of_seq2seq("cpu"), far(of_seq2seq, FAR)
    for name in ("loss", "gradient"):  # on a CPU the softmax is the op's
        assert there.pop(name) == pytest.approx(here.pop(name), rel=1e-6)
    assert there == here


@pytest.fixture(autouse=True)
def _short_text(tmp_path: Path) -> None:
    """A hundred characters to validate on: the stand-in is slow."""
    (tmp_path / "text.txt").write_bytes(corpus.excerpt().bytes[:2000].tobytes())


RECIPES = ["modern-gated-lstm", "hutter-stacked-gru", "modern-programs-gated-gru"]


def options(folder: Path, recipe: str) -> Any:
    if "programs" not in recipe:
        return tiny(folder, recipe, dropout=0.0, validate_chars=30, updates=6, precision="float32")
    small = {"programs": 40, "rows": 4, "max_length": 2, "max_nesting": 1, "hidden_size": 5, "num_layers": 1}
    run = {"epochs": None, "updates": 4, "validate_programs": 3, "checkpoint_every": 2, "log_every": 1, "ema": 0.9}
    return find(recipe).config.replace(**small, **run, precision="float32")


def trained(folder: Path, name: str, recipe: str, device: str) -> dict[str, Any]:
    result = train(options(folder, recipe), folder / name, device=device)
    return {**result, **outcome(folder / name)}


@pytest.mark.parametrize("recipe", RECIPES)
def test_training_comes_to_the_same_there_and_goes_on_here(recipe: str, tmp_path: Path) -> None:
    here = trained(tmp_path, "here", recipe, "cpu")
    there = far(trained, tmp_path, "there", recipe, FAR)
    for one, other in zip(here["history"], there["history"], strict=True):
        assert one.keys() == other.keys()
        numbers = [key for key in one if isinstance(one[key], float)]
        assert [one[key] for key in numbers] == pytest.approx([other[key] for key in numbers], rel=1e-3)
    assert there["tensors"].keys() == here["tensors"].keys()
    assert json.loads((tmp_path / "there" / "env.json").read_text())["device"] == FAR
    assert trained(tmp_path, "there", recipe, "cpu")["already_done"]  # a checkpoint is of no device


def left_to_choose(folder: Path) -> str:
    """The precision of a run there, beside a CPU that multiplies in bfloat16."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "multiplies_bfloat16", lambda: True)
        config = options(folder, "hutter-stacked-gru").replace(precision="auto", updates=1)
        train(config, folder / "run", device=FAR)
    return Config.load(folder / "run" / "config.yaml").run.precision


def test_auto_is_float32_there(tmp_path: Path) -> None:
    assert far(left_to_choose, tmp_path) == "float32"


def stopped_and_continued(folder: Path, name: str, stop: int | None) -> dict[str, Any]:
    from test_resume import stop_at

    with pytest.MonkeyPatch.context() as patch:
        if stop is not None:
            stop_at(patch, stop)
            with pytest.raises(Preempted):
                train(tiny(folder, validate_chars=30), folder / name, device=FAR)
    train(tiny(folder, validate_chars=30), folder / name, device=FAR)
    return outcome(folder / name)


def test_a_run_there_is_resumed_bit_identically(tmp_path: Path) -> None:
    whole = far(stopped_and_continued, tmp_path, "whole", None)
    assert far(stopped_and_continued, tmp_path, "run", 7) == whole


def begun_here(folder: Path) -> int:
    """A run that was stopped on the CPU and goes on far away."""
    from test_resume import stop_at

    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, 7)
        with pytest.raises(Preempted):
            run_tiny(folder, precision="float32")
    updates: int = train(tiny(folder, precision="float32"), folder / "run", device=FAR)["updates"]
    return updates


def test_a_run_begun_on_the_cpu_goes_on_there(tmp_path: Path) -> None:
    assert far(begun_here, tmp_path) == 12
    (resumed,) = [record for record in read_metrics(tmp_path / "run") if record["kind"] == "resume"]
    assert resumed["environment"]["device"] == FAR


def commands(folder: Path, device: str) -> list[tuple[int, str, str]]:
    data, run = folder.parent / "text.txt", folder / "run"
    small = ["--data", data, "--updates", "2", "--rows", "2", "--length", "5", "--hidden-size", "4", "--json"]
    CharLM(hidden_size=4, num_layers=3).save_pretrained(folder / "model")
    Seq2Seq(hidden_size=4, num_layers=1).save_pretrained(folder / "programs")
    (folder / "program.py").write_text(SOURCES[0])
    lines: list[list[Any]] = [
        ["train", "modern-gated-lstm", "--out", run, "--init", folder / "model", *small],
        ["eval", run, "--data", data, "--split", "valid", "--json"],
        ["generate", run, "--prompt", "The ", "--chars", "9", "--seed", "1"],
        ["generate", run, "--samples", "2", "--chars", "9", "--seed", "1"],
        ["run-program", folder / "programs", folder / "program.py", "--beam", "2"],
    ]
    return [command(*line, "--device", device) for line in lines]


def test_every_command_that_runs_a_model_takes_the_device(tmp_path: Path) -> None:
    for place in ("cpu", "far"):
        (tmp_path / place).mkdir()
        answers = far(commands, tmp_path / place, place)
        assert [code for code, _, _ in answers] == [0] * 5, answers
        result, scored = (json.loads(out) for _, out, _ in answers[:2])
        numbers = (result["bpc"], scored["bpc"])
        assert np.isfinite(numbers).all()
    assert '"device": "far"' in (tmp_path / "far" / "run" / "env.json").read_text()


def test_several_processes_each_take_a_device_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Two(World):
        size = 2

    monkeypatch.setattr(training, "join", Two)
    monkeypatch.setattr(training, "find_device", torch.device)
    with pytest.raises(UsageError, match="--device cuda:1: 2 processes each take their own, say cuda"):
        train(tiny(tmp_path), tmp_path / "run", device="cuda:1")


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "", "meta", "cuda", "cuda:7", "mps"])
@pytest.mark.parametrize("verb", ["train", "eval", "generate", "run-program"])
def test_a_device_that_is_not_there_is_a_sentence(
    verb: str, device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if device.startswith(("cuda", "mps")) and device != "cuda:x" and torch.accelerator.is_available():
        pytest.skip("this machine may have it")
    lines = {"train": ["modern-gated-lstm", "--out", str(tmp_path / "run")], "eval": [], "generate": []}
    if verb == "run-program":
        Seq2Seq(hidden_size=4, num_layers=1).save_pretrained(tmp_path)
        (tmp_path / "program.py").write_text(SOURCES[0])
        lines[verb] = [str(tmp_path), str(tmp_path / "program.py")]
    assert main([verb, *lines[verb], "--device", device]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"gfrnn: --device {device}")
    assert said.count("\n") == 1
    assert len(said) < 200
