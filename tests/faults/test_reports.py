"""Every number in a report comes from run files: the same files give the same report, wherever they are."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from harness import command
from runs import run_tiny, write_text

import gfrnn
from gfrnn.bench.output import as_text
from gfrnn.models import Seq2Seq
from gfrnn.recipes import find
from gfrnn.report.heatmap import describe, pair
from gfrnn.tasks.programs import grid
from gfrnn.training.config import Config
from gfrnn.training.runlog import read_metrics

RESULTS = Path(__file__).parents[2] / "results"
LOGGED = RESULTS / "gf-lstm-enwik8"


def picture(tmp_path: Path, *runs: Path, heatmap: bool = False) -> dict[str, bytes]:
    shutil.rmtree(tmp_path / "pictures", ignore_errors=True)
    line = ["plot", *runs, "--out", tmp_path / "pictures/of", *(["--heatmap"] if heatmap else [])]
    assert command(*line)[0] == 0
    return {path.name: path.read_bytes() for path in (tmp_path / "pictures").iterdir()}


def test_curves_need_the_metrics_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_tiny(tmp_path)
    here = picture(tmp_path, tmp_path / "run")
    assert sorted(here) == ["of.png", "of.svg"]
    (tmp_path / "else/where/run").mkdir(parents=True)
    shutil.copy(tmp_path / "run/metrics.jsonl", tmp_path / "else/where/run")
    monkeypatch.chdir(tmp_path / "else")
    assert picture(tmp_path, Path("where/run")) == here
    metrics = tmp_path / "else/where/run/metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"bpc": 7', '"bpc": 6'))
    assert picture(tmp_path, Path("where/run")) != here


def test_evaluating_gives_the_number_in_the_metrics_again(tmp_path: Path) -> None:
    best = run_tiny(tmp_path)["bpc"]
    assert best == min(record["bpc"] for record in read_metrics(tmp_path / "run") if record["kind"] == "valid")
    shutil.move(tmp_path / "run", tmp_path / "moved")
    numbers = []
    for _ in range(2):
        code, out, _ = command("eval", tmp_path / "moved", "--split", "valid", "--json")
        assert code == 0
        numbers.append(json.loads(out)["bpc"])
    assert numbers[0] == numbers[1] == best
    assert write_text(tmp_path) in (tmp_path / "moved/config.yaml").read_text()


@pytest.mark.soak  # twelve large pictures
def test_heat_maps_are_made_again_from_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GFRNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(grid, "PER_CELL", 2)
    runs = [tmp_path / "runs" / wiring for wiring in ("gated", "stacked")]
    for run in runs:
        Seq2Seq("lstm", 3, 2, run.name).save_pretrained(run / "best")
        (run / "config.yaml").write_text("task: programs\n")
    first = picture(tmp_path, *runs, heatmap=True)
    kept = picture(tmp_path, *runs, heatmap=True)  # from grid.json
    for run in runs:
        (run / "grid.json").unlink()
    again = picture(tmp_path, *runs, heatmap=True)  # from the models
    assert first == kept == again
    assert len(first) == 4


def test_the_logged_run_still_gives_its_published_curves(tmp_path: Path) -> None:
    assert picture(tmp_path, LOGGED)["of.svg"] == (LOGGED / "curves.svg").read_bytes()


GRIDS = sorted((RESULTS / "programs").glob("programs-*"))


@pytest.mark.slow  # every day test_report.py draws them for the published report
@pytest.mark.usefixtures("svg_alone")
def test_the_logged_grids_still_give_their_published_heat_maps(tmp_path: Path) -> None:
    drawn = picture(tmp_path, *GRIDS, heatmap=True)
    for name in ("", "-exact"):
        assert drawn[f"of{name}.svg"] == (RESULTS / f"programs/heatmap{name}.svg").read_bytes()


def test_the_logged_grids_still_give_their_published_numbers() -> None:
    assert len(GRIDS) == 4
    page = (RESULTS / "programs/README.md").read_text()
    reports = [(run.name, json.loads((run / "grid.json").read_text())) for run in GRIDS]
    for metric in ("symbol_accuracy", "exact_match"):
        for sentence in describe(pair(reports, metric)).split("\n"):
            assert f"- {sentence}\n" in page
    for _, report in reports:
        assert f"| {100 * report['symbol_accuracy']:.2f} % (" in page
        assert f"| {100 * report['exact_match']:.2f} % (" in page


@pytest.mark.parametrize(
    ("model", "log", "said", "recipe", "given"),
    [
        ("gf-lstm-enwik8", LOGGED, "test.json", "modern-gated-lstm", {"precision": "float32"}),
        (
            "stacked-lstm-enwik8",
            RESULTS / "stacked-lstm-enwik8",
            "test.json",
            "modern-stacked-lstm",
            {"precision": "bfloat16"},
        ),
    ],
)
def test_the_card_of_a_packaged_model_quotes_its_log(
    model: str, log: Path, said: str, recipe: str, given: dict[str, Any]
) -> None:
    card = (Path(gfrnn.__file__).parent / f"pretrained/{model}/README.md").read_text()
    records = read_metrics(log)
    (start,) = (record for record in records if record["kind"] == "start")
    (final,) = (record for record in records if record["kind"] == "final")
    last = [record for record in records if record["kind"] == "valid"][-1]
    assert f"{start['parameters']:,} parameters" in card
    assert f"{last['characters']:,} characters" in card
    assert f"(validation {final['bpc']:.3f})" in card
    assert f"{last['seconds'] / 60:.0f} minutes on " in card
    tested = json.loads((log / said).read_text())
    assert (tested["text"], tested["split"], tested["characters"]) == ("enwik8", "test", 5_000_000)
    assert f"**Test BPC {tested['bpc']:.3f}**" in card
    if "Dynamic" in card:
        dynamic = json.loads((RESULTS / "dynamic/test.json").read_text())
        assert (dynamic["split"], dynamic["characters"], dynamic["bpc"]) == ("test", 5_000_000, tested["bpc"])
        assert f"**Dynamic test BPC {dynamic['bpc_dynamic']:.3f}**" in card
    words = [f"--{key.replace('_', '-')} {value}" for key, value in given.items()]
    assert "`gfrnn train " + " ".join([recipe, *words, "--data enwik8"]) in card
    logged, planned = Config.load(log / "config.yaml"), find(recipe).config.replace(**given)
    changed = {key for key, value in planned.options.items() if logged.options[key] != value}
    assert changed <= {"data", "unknown"}  # so that the card's command is the whole truth


def test_the_tables_of_the_bench_are_made_of_its_json() -> None:
    results = json.loads((RESULTS / "bench/bench.json").read_text())
    assert as_text(results).split() == (RESULTS / "bench/bench.txt").read_text().split()
    assert re.search(r"GFLSTM|gf|gated", (RESULTS / "bench/bench.txt").read_text())
