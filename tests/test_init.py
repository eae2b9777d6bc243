"""Training from a saved model: its weights, its symbols, its name in the record, and no need of it any more."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from ranks import run_command, together, words
from runs import outcome, tiny, write_text
from test_resume import stop_at

from gfrnn.cli import main
from gfrnn.cli.evaluate import paper_number
from gfrnn.errors import DataError, Preempted, UsageError
from gfrnn.models import CharLM, Seq2Seq
from gfrnn.models.pretrained import PACKAGED
from gfrnn.recipes import find
from gfrnn.storage.files import sha256_of
from gfrnn.tasks.text import corpus
from gfrnn.training.checkpoint import Checkpoints
from gfrnn.training.run import train
from gfrnn.training.runlog import read_metrics

LETTERS = bytes(range(32, 127)) + b"\n"


def saved(folder: Path, vocabulary: bytes | None = None, **options: Any) -> str:
    """A small model that no recipe has, with weights unlike fresh ones."""
    model = CharLM("gru", hidden_size=5, num_layers=2, wiring="feedback", vocabulary=vocabulary, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    model.save_pretrained(folder / "model")
    return str(folder / "model")


def start(folder: Path, init: str, name: str = "run", given: tuple[str, ...] = (), **options: Any) -> dict[str, Any]:
    """The tiny run, with the architecture left to the model."""
    free = {"hidden_size": 140, "num_layers": 3, "dropout": 0.3, "ema": 0.9}
    return train(tiny(folder, **{**free, **options}), folder / name, given=given, init=init)


def first_weights(run: Path) -> dict[str, torch.Tensor]:
    return Checkpoints(run).load(0).model


def test_it_starts_with_the_models_weights_and_architecture_and_says_which_it_was(
    tmp_path: Path, told: list[str]
) -> None:
    init = saved(tmp_path)
    start(tmp_path, init, keep=20)
    theirs = CharLM.from_pretrained(init).state_dict()
    ours = first_weights(tmp_path / "run")
    assert set(ours) == set(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    changed = "wiring feedback, num_layers 2, hidden_size 5, normalise False, forget_bias 0.0"
    assert any(f"modern-gated-lstm with the architecture of {init}: unit gru, {changed}" in words for words in told)
    which = {"model": init, "sha256": sha256_of(Path(init) / "model.safetensors")}
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert {key: config["init"][key] for key in which} == which
    assert (config["model"]["unit"], config["model"]["hidden_size"]) == ("gru", 5)
    assert read_metrics(tmp_path / "run")[0]["init"] == which
    best = json.loads((tmp_path / "run" / "best" / "config.json").read_text())
    assert best["training"]["init"] == which
    assert paper_number(str(tmp_path / "run")) == {}
    assert best["dropout"] == 0.3  # how it is trained is the recipe's


def test_stopped_and_continued_without_the_model_it_ends_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init = saved(tmp_path)
    start(tmp_path, init, "whole")
    with monkeypatch.context() as patch:
        stop_at(patch, 7)
        with pytest.raises(Preempted):
            start(tmp_path, init)
    shutil.rmtree(init)
    start(tmp_path, init)  # the same command
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
    monkeypatch.chdir(tmp_path)
    assert start(tmp_path, "model")["already_done"]


def test_bytes_the_model_does_not_know_are_learnt_beside_those_it_knows(tmp_path: Path, told: list[str]) -> None:
    init = saved(tmp_path, LETTERS[::-1])
    start(tmp_path, init, keep=20)
    assert any("has bytes that the model does not know: the model knows all 256, not its 96" in words for words in told)
    theirs, ours = CharLM.from_pretrained(init), CharLM.from_pretrained(tmp_path / "run")
    assert ours.vocabulary.symbols == bytes(range(256))
    old, new = theirs.state_dict(), first_weights(tmp_path / "run")
    places = torch.tensor(list(LETTERS[::-1]))
    for j in range(2):
        name = f"layer.weight_ih_l{j}"
        assert torch.equal(new[name][:, places], old[name][:, :96])
        assert torch.equal(new[name][:, 256:], old[name][:, 96:])
        assert torch.equal(new[f"layer.weight_hh_l{j}"], old[f"layer.weight_hh_l{j}"])
    strange = [byte for byte in range(256) if byte not in LETTERS]
    assert new["layer.weight_ih_l0"][:, strange].std() == pytest.approx(0.5, rel=0.1)  # the recipe's input_std
    for name in ("head.weight", "head.bias"):
        assert torch.equal(new[name][places], old[name])
        assert torch.allclose(new[name][strange], old[name].mean(0))


def test_new_symbols_leave_a_trained_model_as_good_as_it_was() -> None:
    small = CharLM.from_pretrained(PACKAGED)
    grown = CharLM.from_config({**small.config, "vocabulary": list(range(256))})
    grown.start_from(small)
    text = corpus.excerpt().bytes[:600].tobytes()
    assert grown.score(text).mean() == pytest.approx(small.score(text).mean(), abs=0.01)
    same = CharLM.from_config(small.config)
    same.start_from(small.double())
    assert same.generate("The ", 20, seed=1) == CharLM.from_pretrained(PACKAGED).generate("The ", 20, seed=1)


def test_unknown_bytes_are_refused_or_replaced_if_asked(tmp_path: Path) -> None:
    init = saved(tmp_path, LETTERS)
    with pytest.raises(DataError, match="which is not among the model's 96 symbols"):
        start(tmp_path, init, unknown="refuse")
    start(tmp_path, init, unknown="replace")
    assert CharLM.from_pretrained(tmp_path / "run").vocabulary.symbols == LETTERS


def test_a_program_model_goes_on_with_programs(tmp_path: Path) -> None:
    Seq2Seq("lstm", hidden_size=4, num_layers=1).save_pretrained(tmp_path / "model")
    small = {"programs": 40, "rows": 4, "validate_programs": 3, "epochs": None, "updates": 2, "keep": 9}
    config = find("modern-programs-gated-gru").config.replace(**small)
    train(config, tmp_path / "run", init=str(tmp_path / "model"))
    theirs, ours = Seq2Seq.from_pretrained(tmp_path / "model").state_dict(), first_weights(tmp_path / "run")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    with pytest.raises(UsageError, match="is a Seq2Seq, but modern-gated-lstm trains a CharLM"):
        start(tmp_path, str(tmp_path / "model"), "other")
    with pytest.raises(UsageError, match="is a CharLM, but modern-programs-gated-gru trains a Seq2Seq"):
        train(config, tmp_path / "other", init=PACKAGED)


def test_what_does_not_go_together_is_refused_in_a_sentence(tmp_path: Path) -> None:
    init = saved(tmp_path)
    with pytest.raises(UsageError, match="has unit gru, not lstm; hidden_size 5, not 8: its architecture is kept"):
        start(tmp_path, init, given=("hidden_size", "unit", "rows"), hidden_size=8)
    with pytest.raises(DataError, match="neither a folder nor a model in the package; did you mean 'gf-lstm-enwik8'"):
        start(tmp_path, "gf-lstm-enwiki8")
    other = saved(tmp_path / "narrow", output="last")
    with pytest.raises(UsageError, match="has output last, and no recipe can train such a model"):
        start(tmp_path, other)
    assert not (tmp_path / "run" / "config.yaml").exists()
    start(tmp_path, init, given=("hidden_size",), hidden_size=5)
    with pytest.raises(UsageError, match=rf"was started with --init {init}, not with --init {PACKAGED}"):
        start(tmp_path, PACKAGED)
    train(tiny(tmp_path), tmp_path / "plain")
    with pytest.raises(UsageError, match=rf"was started without --init, not with --init {init}"):
        train(tiny(tmp_path), tmp_path / "plain", init=init)


@pytest.mark.parametrize("symbols", ["'xyz'", "'4141'", "''", "41"])
def test_a_configuration_that_was_tampered_with_is_refused(symbols: str, tmp_path: Path) -> None:
    start(tmp_path, saved(tmp_path))
    config = tmp_path / "run" / "config.yaml"
    lines = [line for line in config.read_text().splitlines() if not line.startswith("  symbols")]
    config.write_text("\n".join([*lines, f"  symbols: {symbols}", ""]))
    with pytest.raises(DataError, match=r"config.yaml: init: symbols must be"):
        start(tmp_path, str(tmp_path / "model"))


def test_the_packaged_model_by_name_on_any_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = [
        "train",
        "modern-stacked-gru",
        "--init",
        PACKAGED,
        "--data",
        write_text(tmp_path),
        "--out",
        str(tmp_path / "run"),
    ]
    line += ["--rows", "2", "--length", "20", "--updates", "2", "--validate-chars", "200", "--learning-rate", "1e-9"]
    assert main([*line, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["bpc"] < 1.9  # it has read the excerpt
    assert main([*line, "--hidden-size", "12"]) == 2


def test_two_processes_start_from_the_first_ones_model(tmp_path: Path) -> None:
    init = saved(tmp_path)
    own = words(tmp_path, hidden_size=5, num_layers=2, keep=20)
    line = [*own, "--init", init, "--out", str(tmp_path / "run")]
    answers = together(run_command, [line, line])
    assert [code for code, _ in answers] == [0, 0], answers
    theirs, ours = CharLM.from_pretrained(init).state_dict(), first_weights(tmp_path / "run")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
