"""By how much one row is better than another, and the picture of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from reports import write_run

from gfrnn.report import forest
from gfrnn.report.claims import load_claims
from gfrnn.report.evidence import collect
from gfrnn.report.gains import Comparison, Gain, comparisons

SHORT: dict[str, Any] = {"epochs": None, "chars": 3_000_000}


def pair(
    folder: Path, seed: int, stacked: float | None, gated: float | None, unit: str = "lstm", **options: Any
) -> None:
    """A stack and gated feedback; without a test score their validations end at 2.0 and 1.9."""
    for kind, bpc, last in (("stacked", stacked, 2.0), ("gated", gated, 1.9)):
        place = folder / f"{kind}-{unit}-{seed}-{len(list(folder.glob('*')))}"
        write_run(place, f"modern-{kind}-{unit}", seed, bpc, curve=(3.0, last), **options)


def found(folder: Path) -> dict[tuple[str, str], Comparison]:
    return {(one.better, one.worse): one for one in comparisons(load_claims(), collect([folder]))}


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    folder = tmp_path / "campaign"
    folder.mkdir()
    return folder


def test_seeds_decide(campaign: Path) -> None:
    for seed, ahead in ((1, 0.010), (2, 0.012), (3, 0.011)):
        pair(campaign, seed, 1.80, 1.80 - ahead)
    (gain,) = found(campaign)["gated-lstm", "stacked-lstm"].gains
    assert (gain.noise, gain.seeds, gain.decided) == ("seeds", 3, True)
    assert gain.value == pytest.approx(0.011) and gain.interval is not None
    assert gain.interval.low == pytest.approx(0.011 - 4.30265 * 0.001 / 3**0.5, abs=1e-6)


def test_one_seed_decides_nothing_however_sure_its_text(campaign: Path) -> None:
    pair(campaign, 1, 1.80, 1.60)
    (gain,) = found(campaign)["gated-lstm", "stacked-lstm"].gains
    assert gain.noise == "text" and gain.interval is not None and gain.interval.low > 0
    assert not gain.decided


def test_without_a_test_score_validation_is_shown_and_has_no_interval(campaign: Path) -> None:
    pair(campaign, 1, None, None)
    (gain,) = found(campaign)["gated-lstm", "stacked-lstm"].gains
    assert (gain.noise, gain.seeds, gain.interval) == ("validation", 1, None)
    assert gain.value == pytest.approx(0.1)


def test_seeds_that_do_not_agree_decide_nothing(campaign: Path) -> None:
    for seed, ahead in ((1, 0.010), (2, -0.012)):
        pair(campaign, seed, 1.80, 1.80 - ahead)
    (gain,) = found(campaign)["gated-lstm", "stacked-lstm"].gains
    assert gain.value == pytest.approx(-0.001) and not gain.decided


def test_a_gain_of_each_group_the_longest_training_first(campaign: Path) -> None:
    pair(campaign, 1, 2.1, 2.2, **SHORT)
    pair(campaign, 1, 1.8, 1.7)
    gains = found(campaign)["gated-lstm", "stacked-lstm"].gains
    assert [(gain.group[1], round(gain.value, 3)) for gain in gains] == [("1epoch", 0.1), ("3M", -0.1)]


def test_the_papers_gain_is_that_of_its_table(campaign: Path) -> None:
    pair(campaign, 1, 1.8, 1.9, unit="tanh")
    write_run(campaign / "own", "modern-gated-own-gru", 1, 1.9)
    write_run(campaign / "stack", "modern-stacked-gru", 1, 1.9)
    by_pair = found(campaign)
    assert by_pair["stacked-tanh", "gated-tanh"].paper == pytest.approx(1.949 - 1.892)
    assert by_pair["stacked-tanh", "gated-tanh"].gains[0].value == pytest.approx(0.1)
    assert by_pair["gated-own-gru", "stacked-gru"].paper is None
    assert set(by_pair) == {("stacked-tanh", "gated-tanh"), ("gated-own-gru", "stacked-gru")}


def test_the_picture_has_a_line_for_everything(campaign: Path, tmp_path: Path) -> None:
    for seed in (1, 2):
        pair(campaign, seed, 1.80, 1.79 + 0.001 * seed)
    pair(campaign, 1, 2.1, 2.2, **SHORT)
    found_here = list(found(campaign).values())
    forest.plot(found_here, tmp_path / "gains")
    drawing = (tmp_path / "gains.svg").read_text()
    said = ("LSTM: gated feedback over stacked", "modern settings, 1 epoch (2 seeds)", "3 M characters (one seed)")
    assert all(words in drawing for words in said)
    assert (tmp_path / "gains.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("gain", "ends"),
    [
        (Gain(("modern", "3M"), 0.02, "validation", 1), [0.02, 0.026]),
        (Gain(("modern", "3M"), -0.3, "text", 1), [-0.3, 0.026]),
    ],
)
def test_everything_drawn_is_within_the_axis(gain: Gain, ends: list[float]) -> None:
    assert forest.edges(Comparison("gated-lstm", "stacked-lstm", 0.026, (gain,))) == ends
