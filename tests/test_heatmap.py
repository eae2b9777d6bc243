"""Heat maps: who is compared with whom, what is marked, and that the numbers are in the picture."""

import json
from pathlib import Path
from typing import Any

import matplotlib
import pytest

from gfrnn import evaluate_programs
from gfrnn.cli import main
from gfrnn.errors import UsageError
from gfrnn.evaluate_programs import COUNTS, LENGTHS, NESTINGS, Result, pack, summary
from gfrnn.models.seq2seq import Seq2Seq
from gfrnn.report.heatmap import describe, draw, pair

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
    return {"model": model, "programs_sha256": "same", "per_cell": 20, "cells": cells}


FOUR = [
    ("gg", report("gru", "gated", 5)),
    ("gs", report("gru", "stacked", 6)),
    ("ls", report("lstm", "stacked", 4)),
    ("lg", report("lstm", "gated", 4, extra=True)),
]


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
    assert "+0.00 points where nesting + length <= 7, +12.50 where it is > 9" in told
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
    assert again.read_bytes() == svg.read_bytes()


@pytest.mark.parametrize(
    ("reports", "sentence"),
    [
        (FOUR[:3], "of lstm there are 1: ls"),
        ([*FOUR[2:], FOUR[2]], "of lstm there are 3: ls, lg, ls"),
        ([FOUR[0], ("x", {**FOUR[1][1], "programs_sha256": "other"})], "different programs"),
    ],
)
def test_what_cannot_be_compared(reports: list, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        pair(reports, "symbol_accuracy")


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("GFRNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(evaluate_programs, "PER_CELL", 2)
    for wiring in ("gated", "stacked"):
        Seq2Seq("lstm", 3, 2, wiring).save_pretrained(tmp_path / wiring / "best")
        (tmp_path / wiring / "config.yaml").write_text("task: programs\n")
    runs = [str(tmp_path / "gated"), str(tmp_path / "stacked")]
    assert main(["plot", *runs, "--heatmap", "--out", str(tmp_path / "map")]) == 0
    printed = capsys.readouterr().out
    for name in ("map.svg", "map.png", "map-exact.svg", "map-exact.png"):
        assert (tmp_path / name).stat().st_size > 1000
        assert name in printed
    assert json.loads((tmp_path / "gated" / "grid.json").read_text())["per_cell"] == 2
    assert main(["plot", runs[0], "--heatmap", "--out", str(tmp_path / "one")]) == 2
    assert "1 given" in capsys.readouterr().err
