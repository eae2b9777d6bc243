"""`gfrnn tune`: training what is missing, adopting what is there, tables, and how it ends."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from campaigns import BUDGET, OPTIONS, PRETENDER, notes
from runs import write_text
from test_cli import refused

from gfrnn.campaign import estimate
from gfrnn.campaign import run as running
from gfrnn.campaign.run import Campaign
from gfrnn.campaign.trials import Trial, read
from gfrnn.cli import main
from gfrnn.training.run import train

NAMES = ["gated-4e-3", "gated-8e-3", "stack-4e-3", "stack-8e-3"]


def write_list(folder: Path, **more: Any) -> Path:
    values = {
        "budget": f"{BUDGET} chars",
        "options": OPTIONS,
        "recipes": {"gated": "modern-gated-lstm", "stack": "modern-stacked-lstm"},
        "settings": {"learning_rate": ["4e-3", "8e-3"]},
        **more,
    }
    path = folder / "list.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every run of the list trained."""
    folder = tmp_path_factory.mktemp("made")
    found = read(write_list(folder), (), {"data": write_text(folder)})
    for trial in found.trials:
        train(trial.config, folder / trial.name)
    return folder


@pytest.fixture
def words(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """`gfrnn tune` of the list, with children that only pretend to train."""
    real = Campaign.start

    def start(self: Campaign, planned: Trial, phase: Any) -> None:
        self.command = [sys.executable, str(PRETENDER), str(made)]
        real(self, planned, phase)

    monkeypatch.setattr(Campaign, "start", start)
    monkeypatch.setattr(running, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(estimate, "PROBE_SECONDS", 0.05)
    path = write_list(tmp_path)
    return ["tune", str(path), "--out", str(tmp_path / "c"), "--data", write_text(tmp_path), "--threads", "1"]


def cells(text: str) -> dict[str, dict[str, Any]]:
    return {f"{cell['recipe']}-{cell['setting']}": cell for cell in json.loads(text)["cells"]}


def test_what_is_missing_is_trained_and_nothing_twice(
    words: list[str], made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(made / NAMES[1], tmp_path / "c" / NAMES[1])  # by `gfrnn train`, elsewhere
    table = tmp_path / "table.md"
    assert main([*words, "--json", "--table", str(table)]) == 0
    assert notes(tmp_path, "train") == [NAMES[0], *NAMES[2:]]
    assert notes(tmp_path, "eval") == []  # the test split is not for this
    found = cells(capsys.readouterr().out)
    assert list(found) == NAMES
    for name, cell in found.items():
        last = [json.loads(line) for line in (made / name / "metrics.jsonl").read_text().splitlines()]
        best = min(record["bpc"] for record in last if record["kind"] == "valid")
        assert (cell["bpc"], cell["seeds"]) == (best, {"1": best})
    best_of = {name for name, cell in found.items() if cell["best"]}
    for row in ("gated", "stack"):
        own = {name: cell["bpc"] for name, cell in found.items() if cell["recipe"] == row}
        assert min(own, key=lambda name: own[name]) in best_of
    assert len(best_of) == 2 and all(found[name]["at_the_edge"] for name in best_of)
    assert table.read_text().splitlines()[2] == "| | 4e-3 | 8e-3 |"
    assert main([*words, "--quiet"]) == 0
    out = capsys.readouterr().out
    assert len(notes(tmp_path, "train")) == 3
    assert out.startswith("Validation BPC after 252 characters, seed 1") and "best, at the edge" in out


def test_a_dry_run_trains_nothing_and_shows_both_tables(
    words: list[str], made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(made / NAMES[0], tmp_path / "c" / NAMES[0])
    assert main([*words, "gated", "--dry-run"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in out[1:3]] == [[NAMES[0], "finished"], [NAMES[1], "missing"]]
    assert "2 runs in" in out[3] and out[-1].split() == ["8e-3", "missing"]
    assert main([*words, "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [run["state"] for run in told["runs"]] == ["finished", *["missing"] * 3]
    assert [cell["unfinished"] for cell in told["cells"]] == [{}, *[{"1": "missing"}] * 3]
    assert [path.name for path in (tmp_path / "c").iterdir()] == [NAMES[0]]


def test_the_list_is_for_a_shell(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "c" / NAMES[3]
    other.mkdir(parents=True)
    (other / "config.yaml").write_text("{}")
    assert main([*words, "stack", "--list"]) == 0
    out, error = capsys.readouterr()
    (line,) = out.splitlines()
    assert line.startswith("gfrnn train modern-stacked-lstm --seed 1 --chars 252 ") and line.endswith(NAMES[2])
    assert "--learning-rate 0.004" in line and "eval" not in line
    assert error.startswith("left out: ")


def test_a_run_that_fails_does_not_stop_the_others_and_one_that_diverged_is_a_row(
    words: list[str], made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / f"{NAMES[0]}.fails").write_text("gfrnn: no luck")
    gone = tmp_path / "c" / NAMES[2]
    shutil.copytree(made / NAMES[2], gone)
    with (gone / "metrics.jsonl").open("a") as log:
        log.write('{"kind": "diverged", "step": 12, "why": "not finite"}\n')
    assert main([*words, "--json"]) == 1
    out, error = capsys.readouterr()
    assert f"3 of 4 runs are finished, 1 failed ({NAMES[0]})" in error and "no luck" in error
    found = cells(out)
    assert (found[NAMES[0]]["bpc"], found[NAMES[0]]["unfinished"]) == (None, {"1": "stopped"})
    assert (found[NAMES[2]]["bpc"], found[NAMES[2]]["diverged"]) == (None, [1])
    assert [found[name]["best"] for name in NAMES] == [False, True, False, True]
    assert notes(tmp_path, "train") == [NAMES[0], NAMES[1], NAMES[3]]
    (tmp_path / f"{NAMES[0]}.fails").unlink()
    assert main([*words, "--json"]) == 0
    assert notes(tmp_path, "train")[3:] == [NAMES[0]]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["gatd"], "it has no recipe called 'gatd'; did you mean 'gated'?"),
        (["--list", "--json"], "no --dry-run, --json or --table with it"),
        (["--table", "none/table.md"], "--table none/table.md: none is no folder"),
        (["--jobs", "0"], "--jobs must be at least 1"),
        (["--treads", "1"], "did you mean '--threads'?"),
    ],
)
def test_usage_errors_are_2(
    given: list[str], why: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, sentence = refused(capsys, *words, *given)
    assert (code, why in sentence) == (2, True), sentence
    assert not (tmp_path / "c").exists()
