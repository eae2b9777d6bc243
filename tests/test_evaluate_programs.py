"""Accuracies and their intervals; the grid, its cache, and its report."""

import hashlib
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
import pytest
import torch

from gfrnn.cli import main
from gfrnn.cli.programs import dump
from gfrnn.errors import DataError
from gfrnn.models import CharLM
from gfrnn.models.program_symbols import encode_target
from gfrnn.models.seq2seq import Seq2Seq
from gfrnn.tasks.programs import Settings, grid, split_of, stream
from gfrnn.tasks.programs.evaluation import Result, measure, summary
from gfrnn.tasks.programs.grid import cell, grid_of, grid_programs, pack, unpack
from gfrnn.tasks.programs.intervals import clustered, wilson

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _own_cache_and_small_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GFRNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(grid, "PER_CELL", 4)
    monkeypatch.setattr(grid, "PER_CELL_QUICK", 2)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with a model that has learnt nothing."""
    folder = tmp_path / "run"
    Seq2Seq("gru", 4, 2).save_pretrained(folder / "best")
    (folder / "config.yaml").write_text("task: programs\n")
    return folder


@pytest.fixture(scope="module")
def one_report() -> dict[str, Any]:
    """Of four programs a cell and a model that gets some symbols right."""
    torch.manual_seed(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid, "cache_folder", lambda: Path("/dev/null"))
        patch.setattr(grid, "keep", lambda path, content: None)
        made = grid.evaluate_grid(Seq2Seq("gru", 4, 2), 4)
    return {"model": {"unit": "gru", "wiring": "gated"}, "model_sha256": "0" * 64, "seconds": 1.0, **made}


def test_wilson_holds_at_the_edges_and_in_the_middle() -> None:
    """Reference values of the closed formula, worked out by hand for 0, 1 and 1/4 of 20."""
    z2 = 1.959963984540054**2
    assert wilson(0, 20).low == 0
    assert wilson(0, 20).high == pytest.approx(z2 / (20 + z2))
    assert wilson(1, 20).low == pytest.approx(20 / (20 + z2))
    assert wilson(1, 20).high == 1
    share = wilson(0.25, 20)
    assert (share.low, share.high) == (pytest.approx(0.11186, abs=1e-5), pytest.approx(0.46870, abs=1e-5))


@pytest.mark.parametrize("together", [False, True])
def test_the_interval_holds_the_truth_nineteen_times_in_twenty(together: bool) -> None:
    """Symbols right or wrong independently, or all of a program's together: the interval knows."""
    rng = random.Random(7)
    inside, rounds = 0, 400
    for _ in range(rounds):
        trials = [rng.randint(2, 9) for _ in range(150)]
        if together:
            right = [t if rng.random() < 0.7 else 0 for t in trials]
        else:
            right = [sum(rng.random() < 0.7 for _ in range(t)) for t in trials]
        share = clustered(right, trials)
        inside += share.low <= 0.7 <= share.high
    assert 0.92 <= inside / rounds <= 0.98


def test_summary_counts() -> None:
    report = summary([Result(4, 4, 1.0), Result(2, 1, 3.0), Result(3, 3, 0.5), Result(3, 0, 1.5)])
    assert report["symbol_accuracy"] == 8 / 12
    assert report["exact_match"] == 0.5
    assert report["nats_per_symbol"] == 0.5
    assert (report["programs"], report["symbols"]) == (4, 12)


@pytest.mark.parametrize("rows", [1, 7, 100])
def test_measure_does_not_depend_on_the_minibatches(rows: int) -> None:
    torch.manual_seed(3)
    model = Seq2Seq("gru", 5, 2).double()
    programs = list(stream(1, 25, Settings(max_length=3)))
    results = measure(model, programs, rows)
    again = measure(model, programs[::-1], 25)[::-1]
    for program, result, other in zip(programs, results, again, strict=True):
        assert result.symbols == len(encode_target(program.target))
        assert result.right == other.right
        assert result.nats == pytest.approx(other.nats)
    assert model.training


def test_the_grid_is_test_programs_of_every_cell() -> None:
    programs, _ = grid_programs(3)
    assert len(programs) == 50 * 3
    assert {split_of(p.source) for p in programs} == {"test"}
    assert programs[:3] == list(cell(1, 1, 3))
    assert programs[-3:] == list(cell(5, 10, 3))
    assert {(p.nesting, p.length) for p in programs} == {(n, length) for n in range(1, 6) for length in range(1, 11)}


def test_the_grid_is_made_once_and_a_changed_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    programs, sha256 = grid_programs(2)
    asked: list[int] = []
    monkeypatch.setattr(
        grid, "cell", lambda n, length, count, literals: (asked.append(count), cell(n, length, count))[1]
    )
    assert grid_programs(2) == (programs, sha256)
    assert asked == [1] * 50  # a look at each cell's first, and no more
    (kept,) = (grid.cache_folder() / "programs").iterdir()
    text = kept.read_text()
    kept.write_text(text.replace('"target": "', '"target": "1', 1))
    with pytest.raises(DataError, match=r"test-2-.*jsonl was changed after it was written"):
        grid_programs(2)


def test_test_programs_of_another_generator_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as other:
        other.setattr(grid, "GRID_SEED", 99)
        old, _ = grid_programs(2)
    shorter = "".join(map(dump, list(cell(1, 1, 2)) * 7)).encode()
    folder = grid.cache_folder() / "programs"
    (folder / f"test-2-{hashlib.sha256(shorter).hexdigest()[:32]}.jsonl").write_bytes(shorter)
    new, sha256 = grid_programs(2)
    assert len(new) == len(old)
    assert new[2:4] == list(cell(1, 2, 2)) != old[2:4]
    assert grid_programs(2) == (new, sha256)
    assert len(list(folder.iterdir())) == 3


def test_eval_reports_and_keeps_the_grid(run: Path, capsys: Capture) -> None:
    assert main(["eval", str(run), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["per_cell"] == 4
    assert len(printed["cells"]) == 50
    low, high = printed["symbol_accuracy_interval"]
    assert low < printed["symbol_accuracy"] < high
    assert (
        printed["symbol_accuracy"]
        == sum(c["symbol_accuracy"] * c["symbols"] for c in printed["cells"]) / printed["symbols"]
    )
    kept = json.loads((run / "grid.json").read_text())
    first = kept["cells"][0]
    assert sum(unpack(first["right_symbols"])) / sum(unpack(first["target_symbols"])) == first["symbol_accuracy"]
    assert main(["eval", str(run), "--quick", "--quiet"]) == 0
    table = capsys.readouterr().out
    assert "symbols right:" in table
    assert "greedy answers right: 0.00 %" in table
    assert "100 programs, 2 a cell" in table
    quick = json.loads((run / "grid-quick.json").read_text())["cells"]
    for name in ("symbol_accuracy", "exact_match"):
        half = max(max(c[name] - c[f"{name}_interval"][0], c[f"{name}_interval"][1] - c[name]) for c in quick)
        assert f"a cell's 95 % interval is at most +-{100 * half:.1f} points\n" in table
    assert table.count("a cell's 95 % interval") == 2


def test_a_kept_grid_serves_until_the_model_changes(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = grid_of(run)
    monkeypatch.setattr(grid, "evaluate_grid", lambda *arguments: {"cells": "evaluated again"})
    assert grid_of(run) == first
    torch.manual_seed(99)
    Seq2Seq("gru", 4, 2).save_pretrained(run / "best")
    assert grid_of(run)["cells"] == "evaluated again"


@pytest.mark.parametrize("damage", ["", "[]", '{"cells": []}', "{", "[" * 100_000])
def test_a_damaged_report_is_named(run: Path, damage: str) -> None:
    (run / "grid.json").write_text(damage)
    with pytest.raises(DataError, match=r"grid.json is damaged"):
        grid_of(run)


def with_first_cell(report: dict[str, Any], **values: Any) -> None:
    report["cells"][0].update(values)


EDITS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no model": (lambda r: r.pop("model"), "no report of a whole grid"),
    "model of no unit": (lambda r: r["model"].pop("unit"), "no report of a whole grid"),
    "unknown unit": (lambda r: r["model"].update(unit="relu"), "no unit and wiring"),
    "unknown wiring": (lambda r: r["model"].update(wiring=[]), "no report of a whole grid"),
    "no checksum": (lambda r: r.update(programs_sha256="abc"), "it lacks a checksum"),
    "number for a checksum": (lambda r: r.update(programs_sha256=1), "no report of a whole grid"),
    "a cell twice": (lambda r: with_first_cell(r, length=2), "its cells are not those of the grid"),
    "cells of no shape": (lambda r: r.update(cells=7), "no report of a whole grid"),
    "no programs": (lambda r: with_first_cell(r, target_symbols="", right_symbols=""), "the counts of nesting 1"),
    "a program less": (
        lambda r: with_first_cell(r, target_symbols="222", right_symbols="000"),
        "the counts of nesting 1",
    ),
    "more right than there are": (
        lambda r: with_first_cell(r, right_symbols="zzzz"),
        "the counts of nesting 1, length 1",
    ),
    "targets without symbols": (
        lambda r: with_first_cell(r, target_symbols="0222", right_symbols="0000"),
        "the counts",
    ),
    "not counts": (lambda r: with_first_cell(r, right_symbols="0?00"), "no report of a whole grid"),
    "more per cell": (lambda r: r.update(per_cell=5), "the counts of nesting 1, length 1"),
    "a fraction per cell": (lambda r: r.update(per_cell=4.0), "no whole number"),
    "a text for updates": (lambda r: r.update(updates="many"), "no whole number"),
    "an accuracy": (lambda r: with_first_cell(r, symbol_accuracy=0.99), "nesting 1, length 1 do not follow from"),
    "a text for it": (lambda r: with_first_cell(r, exact_match="0"), "no report of a whole grid"),
    "a number too large": (lambda r: with_first_cell(r, exact_match=10**400), "no report of a whole grid"),
    "an interval": (lambda r: with_first_cell(r, exact_match_interval=[0, 0.001]), "do not follow from its counts"),
    "half an interval": (lambda r: with_first_cell(r, exact_match_interval=[0]), "no report of a whole grid"),
    "nats": (lambda r: with_first_cell(r, nats_per_symbol=float("nan")), "do not follow from its counts"),
    "the total": (lambda r: r.update(symbol_accuracy=0.99), "do not follow from those of its cells"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_report_is_refused(run: Path, edit: str, one_report: dict[str, Any]) -> None:
    (run / "grid.json").write_text(json.dumps(one_report))
    assert grid.read_report(run / "grid.json") == one_report
    report = json.loads(json.dumps(one_report))
    EDITS[edit][0](report)
    (run / "grid.json").write_text(json.dumps(report))
    with pytest.raises(DataError, match=rf"grid\.json is damaged: .*{EDITS[edit][1]}.*if removed"):
        grid.read_report(run / "grid.json")


def test_a_report_says_of_what_model_it_is(run: Path) -> None:
    """Unit, wiring and updates are those of the model itself, whatever the kept report says."""
    config = run / "best" / "config.json"
    (run / "best" / "manifest.json").unlink()
    config.write_text(json.dumps({**json.loads(config.read_text()), "training": {"step": 1234}}))
    report = grid_of(run)
    assert report["updates"] == 1234
    (run / "grid.json").write_text(json.dumps({**report, "updates": 9, "model": {"unit": "lstm", "wiring": "stacked"}}))
    assert grid_of(run) == report


def test_what_cannot_be_kept_is_still_told(run: Path, tmp_path: Path, capsys: Capture) -> None:
    (run / "grid-quick.json").mkdir()  # nothing can be written there, whoever tries
    (tmp_path / "cache").write_text("not a folder")
    assert main(["eval", str(run), "--quick", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["per_cell"] == 2
    assert "grid-quick.json could not be kept: Is a directory" in err
    assert "jsonl could not be kept: Not a directory" in err
    assert [path.name for path in run.iterdir() if path.name.endswith(".tmp")] == []


def test_the_wrong_kind_of_model(tmp_path: Path, capsys: Capture) -> None:
    CharLM(hidden_size=3, num_layers=1).save_pretrained(tmp_path / "text")
    with pytest.raises(DataError, match=r"holds a text model \(CharLM\), not a program model \(Seq2Seq\)"):
        grid_of(tmp_path / "text")
    assert main(["eval", str(tmp_path / "nowhere")]) == 3
    assert "nowhere" in capsys.readouterr().err


def test_the_papers_cells_have_2000_programs() -> None:
    """In a fresh process: here they are smaller."""
    script = "from gfrnn.tasks.programs.grid import PER_CELL, PER_CELL_QUICK; print(PER_CELL, PER_CELL_QUICK)"
    assert forked.run([sys.executable, "-c", script], stdout=forked.PIPE, text=True).stdout == "2000 200\n"


@pytest.mark.parametrize(
    "option", [["--split", "valid"], ["--unknown", "replace"], ["--unknown", "refuse"], ["--half"]]
)
def test_text_options_are_refused(run: Path, option: list[str], capsys: Capture) -> None:
    assert main(["eval", str(run), *option]) == 2
    assert "is a program model" in capsys.readouterr().err


def test_counts_as_text() -> None:
    assert unpack(pack(range(36))) == list(range(36))
