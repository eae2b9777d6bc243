"""`gfrnn eval`: what is scored when nothing is said, what a model has read, and runs without weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from runs import run_tiny, write_text

from gfrnn.cli import main
from gfrnn.tasks.text import corpus

RESULTS = Path(__file__).parents[1] / "results"
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("eval")
    run_tiny(folder)
    return folder / "run"


def evaluated(capsys: Capture, *words: Any) -> tuple[dict[str, Any], str]:
    """The report, and what was said beside it."""
    assert main(["eval", *map(str, words), "--json"]) == 0
    out, err = capsys.readouterr()
    return json.loads(out), err


def refused(capsys: Capture, *words: Any) -> tuple[int, str]:
    code = main(["eval", *map(str, words)])
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return code, err


def test_the_text_it_was_trained_on_is_known_under_any_name(run: Path, tmp_path: Path, capsys: Capture) -> None:
    copy = tmp_path / "another name.txt"
    shutil.copy(write_text(run.parent), copy)
    report, said = evaluated(capsys, run, "--data", copy)
    assert (report["split"], report["characters"], report["read_in_training"]) == ("test", 1000, False)
    assert f"{run} was trained on {copy}: its test split is scored" in said
    own, nothing = evaluated(capsys, run)
    assert (own["bpc"], own["read_in_training"], nothing) == (report["bpc"], False, "")


@pytest.mark.parametrize(("split", "characters"), [("all", 20_000), ("train", 18_000)])
@pytest.mark.parametrize("named", [True, False])
def test_what_the_model_has_read_is_no_test(
    split: str, characters: int, named: bool, run: Path, capsys: Capture
) -> None:
    data = ["--data", write_text(run.parent)] if named else []
    report, said = evaluated(capsys, run, *data, "--split", split)
    assert (report["characters"], report["read_in_training"]) == (characters, True)
    assert "it has read what is scored here" in said


def test_another_text_is_scored_as_a_whole(run: Path, tmp_path: Path, capsys: Capture) -> None:
    other = tmp_path / "other.txt"
    other.write_bytes(corpus.excerpt().bytes[50_000:53_000].tobytes())
    report, said = evaluated(capsys, run, "--data", other)
    assert (report["split"], report["characters"], said) == ("all", 3000, "")
    assert "read_in_training" not in report


def test_a_text_that_changed_since_the_training_is_noticed(run: Path, tmp_path: Path, capsys: Capture) -> None:
    shutil.copytree(run, tmp_path / "run")
    config = tmp_path / "run" / "config.yaml"
    other = tmp_path / "other.txt"
    other.write_bytes(corpus.excerpt().bytes[50_000:80_000].tobytes())
    config.write_text(config.read_text().replace(write_text(run.parent), str(other)))
    _, said = evaluated(capsys, tmp_path / "run")
    assert f"{other} is not the text that {tmp_path / 'run'} was trained on" in said


def test_the_packaged_model_has_read_enwik8_and_its_excerpt(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small = corpus.Corpus(corpus.EXCERPT_NAME, corpus.excerpt().bytes[:20_000])
    monkeypatch.setattr(corpus, "load", lambda path=None: small)
    report, said = evaluated(capsys, "--data", "excerpt")
    assert report["read_in_training"]
    assert "has read the excerpt" in said
    enwik8 = corpus.Corpus("enwik8", corpus.excerpt().bytes[:20_000], is_enwik8=True)
    enwik8.__dict__["sha256"] = corpus.ENWIK8_SHA256
    monkeypatch.setattr(corpus, "load", lambda path=None: enwik8)
    assert evaluated(capsys, "--data", "enwik8")[0]["paper_bpc"] == 1.842


def test_a_published_grid_is_shown_and_said_to_be_the_kept_one(capsys: Capture) -> None:
    folder = RESULTS / "programs" / "programs-gated-gru"
    assert main(["eval", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert "symbols right: 38.18 %" in out
    assert err == f"{folder} holds no weights: the accuracies are those kept in its grid.json\n"
    report, _ = evaluated(capsys, folder, "--quick")  # only the full one is there
    assert (report["kept"], report["per_cell"], len(report["cells"])) == ("grid.json", 2000, 50)
    code, sentence = refused(capsys, folder, "--split", "valid")
    assert code == 2
    assert "kept in its grid.json" not in sentence


@pytest.mark.parametrize(
    ("folder", "bpc", "characters"),
    [("enwik8-10M/modern-gated-lstm", 2.0227, 5_000_000), ("modern-ab/lr4", None, None)],
)
def test_a_published_log_says_what_it_can(
    folder: str, bpc: float | None, characters: int | None, capsys: Capture
) -> None:
    report, said = evaluated(capsys, RESULTS / folder)
    assert report["kept"] == "metrics.jsonl"
    assert report["split"] == "valid"
    assert "holds no weights: these are the best model's numbers in its log" in said
    if bpc is not None:
        assert report["bpc"] == pytest.approx(bpc, abs=1e-4)
        assert report["characters_validated"] == characters
    code, sentence = refused(capsys, RESULTS / folder, "--split", "test")
    assert code == 2
    assert "holds no weights, only its log: --split test cannot be answered" in sentence


def test_a_run_that_has_validated_nothing_yet_is_refused(run: Path, tmp_path: Path, capsys: Capture) -> None:
    shutil.copy(run / "config.yaml", tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"kind": "start", "step": 0}\n')
    code, sentence = refused(capsys, tmp_path)
    assert code == 3
    assert "none was validated yet" in sentence
