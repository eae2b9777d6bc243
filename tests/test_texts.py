"""Texts written for the report, and the gates that were watched: made once, kept, and checked when read again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from reports import write_run

from gfrnn.errors import DataError
from gfrnn.models import CharLM
from gfrnn.report import gates, texts
from gfrnn.report.evidence import collect
from gfrnn.storage.files import sha256_of
from gfrnn.tasks.text import blocks
from gfrnn.tasks.text.corpus import Corpus, excerpt
from gfrnn.tasks.text.score import Score

PAPER = b"\n[[pl:Icon]] x\n    <revision>\n    <title>Inherence relation</title> y <username>Rodasmith</username>\n"


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """A text that passes for enwik8, with the paper's seeds in its test split; and less to write."""
    monkeypatch.setattr(texts, "PROMPTS", 3)
    monkeypatch.setattr(texts, "SAMPLES", 2)
    monkeypatch.setattr(texts, "WRITTEN", 40)
    monkeypatch.setattr(texts, "SHOWN", 20)
    words = excerpt().bytes[:20_000].tobytes() + PAPER
    return Corpus("enwik8", np.frombuffer(words, dtype=np.uint8), is_enwik8=True)


def with_model(run: Path, wiring: str, seed: int = 0) -> str:
    torch.manual_seed(seed)
    CharLM(hidden_size=4, num_layers=2, wiring=wiring).save_pretrained(run / "best")
    return sha256_of(run / "best/model.safetensors")


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    for wiring in ("stacked", "gated"):
        with_model(write_run(tmp_path / "c" / wiring, f"modern-{wiring}-lstm"), wiring)
    return tmp_path / "c"


def test_both_models_continue_the_same_prompts_once(campaign: Path, text: Corpus) -> None:
    found = texts.texts_of(collect([campaign]), text)
    assert found.group == ("modern", "1epoch")
    assert [seed["prompt"] for seed in found.seeds] == [
        "[[pl:Icon]] x\n    <revi",
        "    <title>Inherence relation</title> y <username>Ro",
    ]
    assert all(len(seed[row]) == 2 for seed in found.seeds for row in texts.ROWS)
    assert [len(drawn["gated-lstm"].encode()) >= 40 for drawn in found.document["drawn"]] == [True] * 3
    before = (campaign / texts.FILE).stat().st_mtime_ns
    assert texts.texts_of(collect([campaign]), None) == found  # kept: neither text nor time is needed
    assert (campaign / texts.FILE).stat().st_mtime_ns == before
    prompt = text.split("test").tobytes()[found.document["drawn"][0]["offset"] :][: texts.READ]
    model = CharLM.from_pretrained(campaign / "gated")
    again = model.generate(prompt, 40, seed=texts.LUCK).decode("utf-8", "replace")
    assert found.document["drawn"][0]["gated-lstm"] == again


def test_other_weights_write_again_and_published_texts_must_be_of_these_models(campaign: Path, text: Corpus) -> None:
    first = texts.texts_of(collect([campaign]), text)
    sha256 = with_model(campaign / "gated", "gated", seed=1)
    second = texts.texts_of(collect([campaign]), text)
    assert second.document["models"]["gated-lstm"]["sha256"] == sha256
    assert second != first
    for wiring in ("stacked", "gated"):  # as published: without weights
        for file in (campaign / wiring / "best").iterdir():
            file.unlink()
        (campaign / wiring / "best").rmdir()
    assert texts.texts_of(collect([campaign]), None) == second
    origin = blocks.Origin("a" * 64, "test", 1000, hashlib.sha256(b"other").hexdigest())
    blocks.keep(campaign / "gated", origin, Score(1000.0, 1000, np.array([1000.0])))
    assert texts.texts_of(collect([campaign]), None).why_none.endswith("were written by a gated-lstm that is not there")


def test_without_weights_or_enwik8_it_is_said_why(campaign: Path, tmp_path: Path, text: Corpus) -> None:
    assert "enwik8, which is not here" in texts.texts_of(collect([campaign]), excerpt()).why_none
    write_run(tmp_path / "d/run", "modern-gated-lstm")
    assert "whose weights are there" in texts.texts_of(collect([tmp_path / "d"]), text).why_none


@pytest.mark.parametrize("content", ["{", "[]", '{"group": ["a", "b"]}', "[" * 100_000])
def test_damage_is_named(campaign: Path, content: str) -> None:
    (campaign / texts.FILE).write_text(content)
    with pytest.raises(DataError, match=r"texts.json is damaged"):
        texts.texts_of(collect([campaign]), None)
    (campaign / gates.FILE).write_text(content)
    with pytest.raises(DataError, match=r"gates.json is damaged"):
        gates.read(campaign / gates.FILE)


def test_the_gates_are_those_of_the_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "STREAMS", 2)
    monkeypatch.setattr(gates, "WARMUP", 50)
    text = excerpt().bytes[:2000].tobytes()
    torch.manual_seed(0)
    model = CharLM(hidden_size=5, num_layers=3, input_std=0.5)
    found = gates.measure(model, text)
    ids = torch.from_numpy(model.vocabulary.encode(text).astype(np.int64)).reshape(2, 1000).T
    with torch.no_grad():
        *_, g = model.layer(ids, return_gates=True)
    seen = g[50:].reshape(-1, 3, 3).double().numpy()
    assert found["characters"] == len(seen) == 1900
    assert np.allclose(found["mean"], seen.mean(0), atol=1e-6)
    assert np.allclose(found["deviation"], seen.std(0), atol=1e-6)
    assert np.allclose(found["quantiles"]["0.5"], np.median(seen, 0), atol=1e-6)
    assert np.array(found["histogram"]).sum(-1).tolist() == [[1900] * 3] * 3
    lines = [place for place in range(2000) if text[place : place + 1] == b"\n"]
    inside = [(p // 1000, p % 1000) for p in lines if 75 <= p % 1000 < 975]
    event = found["around"]["a line ends"]
    assert event["count"] == len(inside) > 5
    after = np.mean([g[time + 3, row].double().numpy() for row, time in inside], axis=0)
    assert np.allclose(event["mean"][gates.AROUND + 3], after, atol=1e-6)
    document = {"model": "m", "model_sha256": "0" * 64, "text": "t", **found}
    gates.keep(tmp_path, document)
    assert gates.read(tmp_path / gates.FILE) == json.loads(json.dumps(document))
    with pytest.raises(DataError, match="too few to watch"):
        gates.measure(model, text[:100])
