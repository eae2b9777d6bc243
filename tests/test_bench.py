"""The bench: contenders take turns, targets are judged, and what is printed, saved and drawn.

No test here looks at a clock: what a machine can do is not a matter of right or wrong.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from tiny_bench import tiny

from gfrnn import ops
from gfrnn.bench import clock, contenders, generation, precision, sections, targets, updates
from gfrnn.bench.clock import Entry, Group, Spread, Timed, time_in_turn
from gfrnn.bench.plan import FULL, LSTM, QUICK, SECTIONS, Plan, small_name
from gfrnn.cli import main

__all__ = ["tiny"]
Capture = pytest.CaptureFixture[str]


def timed(name: str, seconds: list[float], **work: Any) -> Timed:
    usual = {"characters": 0, "flops": 0.0, "bytes": 0.0, "parameters": 0, "series": "", "x": 0.0}
    return Timed(name, seconds, **{**usual, **work})


def group(section: str, name: str, *entries: Timed, **about: Any) -> Group:
    return Group(section, name, {entry.name: entry for entry in entries}, about)


def test_contenders_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "SAMPLE_SECONDS", 0.0)
    order: list[str] = []
    entries = [Entry(name, lambda name=name: order.append(name)) for name in "ABC"]  # type: ignore[misc]
    found = time_in_turn(entries, repeats=3, least_repeats=1, group_seconds=60)
    assert "".join(order) == "ABC" + "ABC" * 3  # the first time untimed
    assert [len(found[name].seconds) for name in "ABC"] == [3, 3, 3]
    order.clear()
    found = time_in_turn(entries, repeats=9, least_repeats=2, group_seconds=-1.0)
    assert "".join(order) == "ABC" * 3
    assert len(found["A"].seconds) == 2


def test_ratios_are_taken_round_by_round() -> None:
    ours, theirs = timed("cpu", [1.0, 2.0, 10.0], characters=10), timed("loop", [4.0, 6.0, 50.0], characters=5)
    assert group("s", "n", ours, theirs).ratio("cpu", "loop", "characters") == Spread(8.0, 7.0, 9.0)
    assert ours.rate("characters") == Spread.of([10.0, 5.0, 1.0])


def test_exponents_start_where_they_should() -> None:
    entries = [timed(f"cpu {x}", [max(8, x) ** 1.5, 3 * max(8, x) ** 1.5], series="cpu", x=x) for x in (1, 8, 16, 32)]
    found = group("scaling", "rows", *entries, fit_from=8).exponents()
    assert found["cpu"].median == pytest.approx(1.5)
    assert group("scaling", "rows", *entries).exponents()["cpu"].median < 1.4


def test_targets_are_judged_by_the_median() -> None:
    fast, slow = timed("cpu", [1.0, 1.0, 9.0], characters=5), timed("cpu", [1.2, 1.2, 1.2], characters=5)
    loop = timed("loop", [4.5, 4.5, 4.5], characters=5)

    def verdict(*entries: Timed) -> targets.Verdict:
        return targets.judge([group("train", str(LSTM), *entries)], False)[0]

    assert verdict(fast, loop).verdict == "met"
    assert verdict(slow, loop).verdict == "missed"
    assert verdict(fast).verdict == "not measured"
    assert targets.judge([], False)[0].verdict == "not run"
    growing = [timed(f"cpu {x}", [x**1.3], series="cpu", x=x) for x in (10, 20)]
    found = {v.target.what: v.verdict for v in targets.judge([group("scaling", "steps", *growing)], False)}
    assert found["training step, exponent in T"] == "missed"


@pytest.mark.parametrize(("multiplies", "verdict"), [(True, "missed"), (False, "another CPU")])
def test_targets_of_rounded_products_are_for_cpus_that_have_them(multiplies: bool, verdict: str) -> None:
    name = precision.group_name(LSTM, 16, 50, 1)
    entries = [timed(f"cpu {products}", [1.0], characters=5) for products in precision.PRECISIONS]
    found = {v.target.what: v for v in targets.judge([group("precision", name, *entries)], multiplies)}
    one = found["GF-LSTM 3x140, 16 x 50, 1 thread, bfloat16 over cpu float32"]
    assert (one.verdict, one.measured) == (verdict, Spread(1.0, 1.0, 1.0))
    assert found["GF-LSTM 3x140, 16 x 50, 1 thread, bfloat16 over nn.LSTM 3x228 float32"].verdict == "not measured"


def test_every_target_can_be_measured() -> None:
    """Sections, groups and contenders of the targets are those the full bench has."""
    sizes = {str(size) for size in FULL.trained}
    known = {
        *FULL.backends,
        "cpu half",
        f"cpu {generation.MANY}",
        "loop",
        *contenders.named_peers(LSTM),
        *(f"{b} x {t}" for b, t in FULL.minibatches),
    }
    known |= {targets.PEAK, "read, weights' size", "", "bare step", "whole update"}
    known |= {f"{name} {p}" for name in ("cpu", *contenders.named_peers(LSTM)) for p in precision.PRECISIONS}
    groups = sizes | {"rows", "steps", "parameters", small_name(LSTM)}
    groups |= {updates.group_name(LSTM, b, t, p) for b, t in FULL.updated for p in precision.PRECISIONS}
    shapes = [*((LSTM, b, t) for b, t in FULL.precise), *FULL.beyond_caches]
    groups |= {precision.group_name(*shape, threads) for shape in shapes for threads in (1, 2)}
    for target in targets.TARGETS:
        assert target.section in SECTIONS
        assert target.group in groups
        assert {target.ours, target.theirs} <= known
    assert {LSTM} <= set(QUICK.others) and QUICK.trained == FULL.trained


SPREAD = {"median", "low", "high"}


def check_schema(results: dict[str, Any], plan: Plan) -> None:
    """The shape that whoever reads bench.json may rely on."""
    assert results["schema"] == 1
    assert results["plan"]["name"] == plan.name
    assert {"gfrnn", "torch", "cpu", "threads", "backends"} <= results["environment"].keys()
    assert results["environment"]["threads"] == 1
    assert results["seconds"] > 0 and "T" in results["started"]
    for found in results["groups"]:
        assert found["section"] in results["sections"]
        assert len({len(one["seconds"]) for one in found["timed"]}) == 1
        for one in found["timed"]:
            assert len(one["seconds"]) == plan.repeats and min(one["seconds"]) > 0
            assert one["seconds_spread"].keys() == SPREAD
            assert all(one[f"{by}_per_second"].keys() == SPREAD for by in clock.WORK if one[by])
        assert all(values.keys() == SPREAD for values in found["exponents"].values())
    for check in results["checks"]:
        assert 0 <= check["error"] <= check["allowed"]
    for row in results["targets"]:
        assert row["verdict"] in (
            ("not run", "not measured") if row["measured"] is None else ("met", "missed", "another CPU")
        )


def test_every_section_in_json(tiny: Plan, tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("matplotlib")
    words = ["--quick", "--threads", "1", "--json", "--out", tmp_path / "out", "--plot", tmp_path / "plot.svg"]
    assert main(["bench", *map(str, words)]) == 0
    printed = capsys.readouterr()
    results = json.loads(printed.out)
    check_schema(results, tiny)
    assert results["sections"] == list(SECTIONS)
    assert {found["section"] for found in results["groups"]} == set(SECTIONS) - {"memory"}
    contenders_timed = {one["name"] for found in results["groups"] for one in found["timed"]}
    assert {"manual", "loop", "nn.LSTM 2x7", "sgemm 16", "2 x 3", "read, memory"} <= contenders_timed
    (exponents,) = (found["exponents"] for found in results["groups"] if found["name"] == "rows")
    assert exponents.keys() == {"manual"}
    assert [row["contender"] for row in results["memory"]] == ["manual", "manual bfloat16", "loop", "nn.LSTM 2x7"]
    assert results["bits_per_character"]["exact"] == pytest.approx(results["bits_per_character"]["half"], abs=0.01)
    assert "train: GF-LSTM 2x5: round 2 of 2" in printed.err
    assert json.loads((tmp_path / "out" / "bench.json").read_text()) == results
    text = (tmp_path / "out" / "bench.txt").read_text()
    for words in ("GF-LSTM 2x5, 3 x 4", ">= 4.50 x", "kept for the backward", "exponent [quartiles]", "of machine"):
        assert words in text
    assert "…" not in text
    assert "<svg" in (tmp_path / "plot.svg").read_text()
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_the_smallest_section_as_it_is(capsys: Capture) -> None:
    assert main(["bench", "--quick", "--only", "machine", "--repeats", "1", "--threads", "1", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    for words in ("sgemm 2048", "sgemm 25 x 420 x 423", "read, memory", "GF/s", "GB/s", "not run"):
        assert words in printed.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--only", "trian"], "did you mean 'train'?"),
        (["--quick", "--only", "machine", "--threads", "0"], "--threads must be at least 1, got 0"),
        (["--quick", "--only", "machine", "--repeats", "0"], "--repeats must be at least 1, got 0"),
        (["--quik"], "unknown option --quik; did you mean '--quick'?"),
    ],
)
def test_what_cannot_be_asked(words: list[str], sentence: str, capsys: Capture) -> None:
    assert main(["bench", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_no_matplotlib_is_said_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["bench", "--quick", "--plot", str(tmp_path / "plot")]) == 2
    assert capsys.readouterr().err == "gfrnn: --plot needs matplotlib: pip install 'gfrnn[report]'\n"


def test_a_missing_backend_is_named(tiny: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = types.SimpleNamespace(why_unavailable=lambda: ["it was not built"])
    monkeypatch.setitem(ops.BACKENDS, "cpu", missing)
    found = sections.Bench(dataclasses.replace(tiny, backends=("cpu", "manual")))
    assert found.ours == "manual"
    assert found.notes == ["backend 'cpu' is not measured: it was not built"]
