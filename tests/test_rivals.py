"""Learning curves of rows with several seeds: means over them, and differences seed by seed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from reports import write_run

from gfrnn.report.evidence import collect
from gfrnn.report.figures import learning_curves
from gfrnn.report.rivals import Row

GROUP = ("modern", "1epoch")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The second text is harder for all, by 0.5; gated feedback is ahead, by 0.1 in the first and 0.3 in the second."""
    for seed, harder, ahead in ((1, 0.0, 0.1), (2, 0.5, 0.3)):
        stack = (3.0 + harder, 2.0 + harder)
        write_run(tmp_path / f"c/stacked{seed}", "modern-stacked-lstm", seed, curve=stack)
        write_run(tmp_path / f"c/gated{seed}", "modern-gated-lstm", seed, curve=tuple(v - ahead for v in stack))
    write_run(tmp_path / "c/single", "modern-single-lstm", 2, curve=(4.0, 3.0, 2.0))
    return tmp_path / "c"


def test_means_and_differences_are_of_what_all_have(folder: Path) -> None:
    evidence = collect([folder])
    gated, stacked, single = (
        Row(kind, evidence.of(f"{kind}-lstm", GROUP), {}) for kind in ("gated", "stacked", "single")
    )
    assert stacked.mean({1, 2}) == pytest.approx({100: 3.25, 200: 2.25})
    assert stacked.mean({2}) == pytest.approx({100: 3.5, 200: 2.5})
    found = gated.minus(stacked)
    assert sorted(found) == [1, 2]
    assert found[1] == pytest.approx({100: -0.1, 200: -0.1})
    assert found[2] == pytest.approx({100: -0.3, 200: -0.3})
    assert single.minus(stacked) == {2: pytest.approx({100: 0.5, 200: 0.5})}  # one seed, two validations in common
    assert gated.characters() == {100: 1.0, 200: 2.0}


@pytest.mark.usefixtures("svg_alone")
@pytest.mark.parametrize("busy", [False, True])
def test_rows_are_drawn_once_each_and_minutes_only_where_they_compare(folder: Path, busy: bool, tmp_path: Path) -> None:
    if busy:
        (folder / "clock.txt").write_text("it was busy\n")
    said = learning_curves(collect([folder]), GROUP, "lstm", tmp_path / "curves")
    words = re.findall(r"<!-- (.*?) -->", (tmp_path / "curves.svg").read_text(encoding="utf-8"))
    legend = [word for word in words if "seed)" in word or "seeds)" in word]
    assert sorted(legend) == ["gated feedback (2 seeds)", "single layer (1 seed)", "stacked (2 seeds)"]
    assert ("wall-clock, minutes" in words) == (not busy)
    assert "mean of seed 2; thin: each of them" in words  # what all have
    assert "the difference from the stack, paired by seed" in said
    assert ("against wall-clock" in said) == (not busy)
    assert ("Minutes do not compare: it was busy." in said) == busy


def test_nothing_is_drawn_of_a_unit_without_runs(folder: Path, tmp_path: Path) -> None:
    assert learning_curves(collect([folder]), GROUP, "gru", tmp_path / "curves") == ""
    assert not (tmp_path / "curves.svg").exists()
