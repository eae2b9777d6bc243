"""The README's lines work in the order in which they stand, in an empty folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import documents
import pytest
from documents import ROOT
from runs import write_text

from gfrnn.cli import main
from gfrnn.report import build as building
from gfrnn.report import gates, grids, heatmap, statistics

QUICK = "--rows 2 --length 5 --updates 2 --validate-every 1 --validate-chars 50 --quiet"
SMALL = "--hidden-size 4"  # but not of a model that is there already
NOT_HERE = ("bench", "export", "reproduce")  # measure speed, need extras, need enwik8: their own tests run them


def use_lines() -> list[tuple[str, ...]]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text[text.index("\n## Use\n") : text.index("\n## How fast\n")]
    lines = [line for line in section.splitlines() if line.startswith("    gfrnn ")]
    return [words for line in lines for words, _ in documents.commands_in(line)]


def test_no_line_needs_a_run_that_none_before_it_makes() -> None:
    made: set[str] = set()
    for words in use_lines():
        named = {word for word in words if word.startswith("runs/")}
        out = {words[words.index("--out") + 1]} if "--out" in words else set()
        assert named - out <= made, words
        assert not out & made, f"{words}: there is a run already"
        made |= out
    assert made


def test_they_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With less to do; what starts processes trains in this one. test_report.py draws the report and does its sums."""
    monkeypatch.setattr(statistics, "RESAMPLES", 20)
    for module in (grids, heatmap):
        monkeypatch.setattr(module, "OF_A_CELL", 20)
    monkeypatch.setattr(gates, "CHARACTERS", 30_000)
    monkeypatch.setattr(building, "drawable", lambda: False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GFRNN_DATA", write_text(tmp_path))
    shutil.copy(write_text(tmp_path), tmp_path / "my.txt")
    done = []
    for line in use_lines():
        words = [word for word in line if word != "--open"]
        if words[0] == "launch":
            words = words[words.index("train") :]
        if words[0] == "train":
            place = words.index("--minutes" if "--minutes" in words else "--updates")
            words[place : place + 2] = [*QUICK.split(), *([] if "--init" in words else SMALL.split())]
        if "--dynamic" in words:
            words += ["--rule", "sgd", "--limit", "60"]
        if words[0] in NOT_HERE:
            continue
        assert main(words) == 0, words
        done.append(words[0])
    assert {"train", "eval", "generate", "plot", "recipes", "data", "programs"} <= set(done)
    assert (tmp_path / "runs" / "other" / "best").exists()


def test_the_python_example_speaks_for_the_packaged_model() -> None:
    (example,) = [block for block in documents.read(ROOT / "README.md").python if "CharLM" in block]
    assert 'CharLM.from_pretrained("gf-lstm-enwik8")' in example
    namespace: dict[str, object] = {}
    exec(example, namespace)
    bits, text = namespace["bits"], namespace["text"]
    assert float(bits.mean()) < 4  # type: ignore[attr-defined]  # one that has learnt nothing needs more than 7
    assert len(text) == 40  # type: ignore[arg-type]
