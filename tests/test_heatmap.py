"""Heat maps: who is compared with whom, what is marked, and that the numbers are in the picture."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.image
import pytest

from gfrnn.cli import main
from gfrnn.errors import UsageError
from gfrnn.models import CharLM
from gfrnn.models.seq2seq import Seq2Seq
from gfrnn.report import heatmap
from gfrnn.report.heatmap import describe, draw, pair
from gfrnn.tasks.programs import grid
from gfrnn.tasks.programs.evaluation import Result, summary
from gfrnn.tasks.programs.grid import COUNTS, LENGTHS, NESTINGS, pack

Capture = pytest.CaptureFixture[str]


def report(unit: str, wiring: str, right: int, extra: bool = False) -> dict[str, Any]:
    """20 programs of 8 symbols in every cell, `right` of them right; `extra`: one more where it is deep and long."""
    cells = []
    for nesting in NESTINGS:
        for length in LENGTHS:
            more = 1 if extra and nesting + length > 9 else 0
            results = [Result(8, right + more, 1.0)] * 20
            counts = (pack(r.symbols for r in results), pack(r.right for r in results))
            cells.append(
                {"nesting": nesting, "length": length, **summary(results), **dict(zip(COUNTS, counts, strict=True))}
            )
    model = {"unit": unit, "wiring": wiring}
    return {
        "model": model,
        "updates": 1500 if wiring == "stacked" else None,
        "programs_sha256": "same",
        "per_cell": 20,
        "cells": cells,
    }


FOUR = [
    ("gg", report("gru", "gated", 5)),
    ("gs", report("gru", "stacked", 6)),
    ("ls", report("lstm", "stacked", 4)),
    ("lg", report("lstm", "gated", 4, extra=True)),
]


OTHER_TARGETS = [{**cell, "target_symbols": "9" * 20} for cell in FOUR[1][1]["cells"]]


def test_rows_are_units_and_the_stack_comes_first() -> None:
    rows = pair(FOUR, "symbol_accuracy")
    assert [(row.title, row.names) for row in rows] == [("LSTM", ("stacked", "gated")), ("GRU", ("stacked", "gated"))]
    lstm, gru = rows
    assert lstm.a[1, 1].value == lstm.b[1, 1].value == 0.5
    assert gru.gain[3, 3].value == pytest.approx(-1 / 8)


def test_what_is_noise_and_what_is_not() -> None:
    lstm, gru = pair(FOUR, "symbol_accuracy")
    assert {place for place, gain in lstm.gain.items() if not gain.is_noise} == {p for p in lstm.gain if sum(p) > 9}
    assert not any(gain.is_noise for gain in gru.gain.values())
    told = describe([lstm, gru])
    assert "LSTM: gated is better than stacked in 20 of 50 cells, worse in 0, within noise in 30" in told
    assert "+2.50 at nesting 1, +7.50 at nesting 5; +0.00 at length 1, +12.50 at length 10" in told
    assert "GRU: gated is better than stacked in 0 of 50 cells, worse in 50" in told


def test_gains_and_losses_that_cancel_are_noise() -> None:
    """b is right once more on half of the programs and once less on the others, one of which is spared."""
    b = report("gru", "gated", 5)
    for cell in b["cells"]:
        cell["right_symbols"] = "6" * 10 + "4" * 9 + "5"
    (row,) = pair([("a", report("gru", "stacked", 5)), ("b", b)], "symbol_accuracy")
    gain = row.gain[2, 2]
    assert gain.low < 0 < gain.value < gain.high
    assert "in 0 of 50 cells, worse in 0, within noise in 50" in describe([row])


def test_exact_match_counts_whole_programs() -> None:
    exact = [("a", report("gru", "stacked", 7)), ("b", report("gru", "gated", 7, extra=True))]
    (row,) = pair(exact, "exact_match")
    assert row.a[5, 10].value == 0
    assert row.b[5, 10].value == 1
    assert row.gain[5, 10].value == 1
    assert row.gain[1, 1].value == 0


def test_runs_of_one_wiring_keep_the_order_given() -> None:
    (row,) = pair([("new", report("gru", "gated", 5)), ("old", report("gru", "gated", 4))], "symbol_accuracy")
    assert row.names == ("new", "old")


def test_pictures_hold_the_numbers(tmp_path: Path) -> None:
    rows = pair(FOUR[2:], "symbol_accuracy")
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text as text, to be read here
        svg, png = draw(rows, "symbol_accuracy", tmp_path / "new" / "maps")
        again, _ = draw(rows, "symbol_accuracy", tmp_path / "again")
    assert (svg.name, png.name) == ("maps.svg", "maps.png")
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text()
    assert text.count(">50.0<") == 50 + 30
    assert text.count(">62.5<") == 20
    assert text.count(">+12.5<") == 20
    assert text.count(">(0.0)<") == 30
    assert "LSTM, gated minus stacked" in text
    assert "(%); 20 programs a cell<" in text
    assert "LSTM, stacked, after 1,500 updates<" in text
    assert "LSTM, gated<" in text  # nobody knows
    assert again.read_bytes() == svg.read_bytes()


def test_equal_maps_have_equal_colours(tmp_path: Path) -> None:
    nothing_right = [("s", report("lstm", "stacked", 0)), ("g", report("lstm", "gated", 0))]
    _, png = draw(pair(nothing_right, "exact_match"), "exact_match", tmp_path / "maps")
    picture = matplotlib.image.imread(png)
    height, width = picture.shape[:2]
    stacked, gated = (picture[int(0.25 * height), int(x * width)] for x in (0.07, 0.37))  # inside, beside the numbers
    assert (stacked == gated).all()
    assert (stacked[:3] != 1).any()


@pytest.mark.parametrize(
    ("reports", "sentence"),
    [
        (FOUR[:3], "of lstm there are 1: ls"),
        ([*FOUR[2:], FOUR[2]], "of lstm there are 3: ls, lg, ls"),
        ([FOUR[0], ("x", {**FOUR[1][1], "programs_sha256": "other"})], "different programs"),
        ([FOUR[0], ("x", {**FOUR[1][1], "cells": OTHER_TARGETS})], "different programs"),
    ],
)
def test_what_cannot_be_compared(reports: list, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        pair(reports, "symbol_accuracy")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two run folders with small models; a full cell has four programs, a quick one two."""
    monkeypatch.setenv("GFRNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(grid, "PER_CELL", 4)
    monkeypatch.setattr(grid, "PER_CELL_QUICK", 2)
    for wiring in ("gated", "stacked"):
        Seq2Seq("lstm", 3, 2, wiring).save_pretrained(tmp_path / wiring / "best")
        (tmp_path / wiring / "config.yaml").write_text("task: programs\n")
    return [str(tmp_path / "gated"), str(tmp_path / "stacked")]


def keep_rows(monkeypatch: pytest.MonkeyPatch) -> list[list[heatmap.Row]]:
    """Instead of drawing, for what is not about the picture: returns what was to be drawn, figure after figure."""
    kept = []

    def draw(rows: list[heatmap.Row], metric: str, stem: Path) -> list[Path]:
        kept.append(rows)
        return [stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.png")]

    monkeypatch.setattr(heatmap, "draw", draw)
    return kept


def test_the_command(runs: list[str], tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["plot", *runs, "--heatmap", "--out", str(tmp_path / "map"), "--threads", "1"]) == 0
    printed = capsys.readouterr().out
    names = ["map.svg", "map.png", "map-exact.svg", "map-exact.png"]
    for name in names:
        assert (tmp_path / name).stat().st_size > 1000
        assert name in printed
    assert "4 programs a cell:" in printed
    assert json.loads((tmp_path / "gated" / "grid.json").read_text())["per_cell"] == 4
    keep_rows(monkeypatch)
    assert main(["plot", *runs, "--heatmap", "--out", str(tmp_path / "map"), "--json", "--quick"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == [str(tmp_path / name) for name in names]
    assert "2 programs a cell:" in err


def test_reports_published_without_weights_are_drawn_too(
    runs: list[str], tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = keep_rows(monkeypatch)
    assert main(["plot", *runs, "--heatmap", "--out", str(tmp_path / "first")]) == 0
    for run in runs:
        shutil.rmtree(Path(run) / "best")
    capsys.readouterr()
    assert main(["plot", *runs, "--heatmap", "--out", str(tmp_path / "again.png")]) == 0
    first, first_exact, again, again_exact = kept
    assert (again, again_exact) == (first, first_exact)
    assert str(tmp_path / "again-exact.svg") in capsys.readouterr().out
    assert main(["eval", runs[0]]) == 0
    assert "holds no weights: the accuracies are those kept in its grid.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("have", "quick"),
    [
        ((), False),
        (("gated/grid.json",), False),
        (("gated/grid.json", "stacked/grid.json", "stacked/grid-quick.json"), False),
        (("gated/grid-quick.json",), True),
        (("gated/grid-quick.json", "stacked/grid.json"), True),
        (("gated/grid-quick.json", "stacked/grid-quick.json"), True),
    ],
)
def test_a_run_that_was_evaluated_quickly_is_not_evaluated_in_full(
    runs: list[str], tmp_path: Path, have: tuple[str, ...], quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in have:
        (tmp_path / name).write_text("{}")
    asked = []

    def grid_of(run: Path, *, quick: bool, progress: Any) -> dict[str, Any]:
        asked.append((quick, progress("eval").quiet))
        return report("lstm", run.name, 3)

    monkeypatch.setattr(grid, "grid_of", grid_of)
    keep_rows(monkeypatch)
    assert main(["plot", *runs, "--heatmap", "--quiet"]) == 0
    assert asked == [(quick, True)] * 2


def test_what_is_wrong_is_found_before_anything_is_evaluated(
    runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.delattr(grid, "evaluate_grid")
    Seq2Seq("gru", 3, 2).save_pretrained(tmp_path / "gru")
    CharLM(hidden_size=3, num_layers=1).save_pretrained(tmp_path / "text")
    for words, code, sentence in (
        ([runs[0]], 2, "1 given"),
        ([*runs, str(tmp_path / "gru")], 2, "of gru there are 1: gru"),
        ([*runs, str(tmp_path / "nowhere")], 3, "nowhere is neither a folder"),
        ([runs[0], str(tmp_path / "text")], 3, "holds a text model"),
    ):
        assert main(["plot", *words, "--heatmap"]) == code
        assert sentence in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["plot", *runs, "--heatmap"]) == 2
    assert "needs matplotlib" in capsys.readouterr().err


def test_options_of_heat_maps_are_refused_for_curves(runs: list[str], capsys: Capture) -> None:
    for option in (["--quick"], ["--threads", "1"]):
        assert main(["plot", *runs, *option]) == 2
        assert "they go with --heatmap" in capsys.readouterr().err


def test_runs_of_one_wiring_and_one_name_are_told_apart(
    runs: list[str], tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_rows(monkeypatch)
    shutil.copytree(runs[0], tmp_path / "again" / "gated")
    assert main(["plot", runs[0], str(tmp_path / "again" / "gated"), "--heatmap", "--out", str(tmp_path / "map")]) == 0
    assert f"LSTM: again/gated is better than {tmp_path.name}/gated in 0 of 50 cells" in capsys.readouterr().out


def test_help_mentions_heat_maps(capsys: Capture) -> None:
    assert main(["plot", "--help"]) == 0
    assert "heat maps of program models" in " ".join(capsys.readouterr().out.split())
