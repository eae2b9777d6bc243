"""Where in the test text one row gains on another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from reports import TEXT, write_run

from gfrnn.report import places_plot
from gfrnn.report.evidence import collect
from gfrnn.report.places import STRETCH, Places, places, table
from gfrnn.tasks.text import blocks
from gfrnn.tasks.text.score import Score

CHARACTERS = 3 * STRETCH + 500  # the last stretch is half a block


def scored(folder: Path, kind: str, seed: int, stretches: tuple[float, ...], unit: str = "lstm") -> Path:
    """A run that needs so many bits per character in each stretch."""
    run = write_run(folder / f"{kind}-{unit}-{seed}", f"modern-{kind}-{unit}", seed)
    ends = np.minimum(1000 * np.arange(1, 2 + CHARACTERS // 1000), CHARACTERS)
    sizes = np.diff(ends, prepend=0)
    bits = sizes * np.array(stretches)[(ends - 1) // STRETCH]
    blocks.keep(run, blocks.Origin(TEXT, "test", CHARACTERS, 64 * str(seed)), Score(bits.sum(), CHARACTERS, bits))
    return run


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    """Seed 1 loses in the second stretch, seed 2 wins there; elsewhere gated feedback is a little ahead."""
    scored(tmp_path, "stacked", 1, (2.0, 2.0, 2.0, 2.0))
    scored(tmp_path, "gated", 1, (1.9, 2.5, 1.9, 1.8))
    scored(tmp_path, "stacked", 2, (3.0, 3.0, 3.0, 3.0))
    scored(tmp_path, "gated", 2, (2.9, 2.2, 2.7, 2.8))
    return tmp_path


def test_every_stretch_and_the_whole(campaign: Path) -> None:
    (one,) = places(collect([campaign]))
    assert one.unit == "lstm" and list(one.sizes) == [STRETCH] * 3 + [500]
    np.testing.assert_allclose(one.by_seed[1], [0.1, -0.5, 0.1, 0.2])
    np.testing.assert_allclose(one.gains, [0.1, 0.15, 0.2, 0.2])
    runs = {run.folder.name: run for run in collect([campaign]).runs}
    scores = {name: run.test_bpc for name, run in runs.items()}
    whole = [(scores[f"stacked-lstm-{seed}"] or 0) - (scores[f"gated-lstm-{seed}"] or 0) for seed in (1, 2)]
    np.testing.assert_allclose(one.total(), whole)


def test_the_oddest_is_odd_for_the_seeds_even_where_their_mean_is_not(campaign: Path) -> None:
    (one,) = places(collect([campaign]))
    assert one.oddest == 1
    left = 2 * STRETCH + 500
    np.testing.assert_allclose(one.total(without=1), [(0.2 * STRETCH + 100) / left, (0.4 * STRETCH + 100) / left])


def test_only_pairs_that_keep_their_blocks(campaign: Path) -> None:
    (campaign / "gated-lstm-2" / "blocks-test.safetensors").unlink()
    (one,) = places(collect([campaign]))
    assert list(one.bits) == [1]
    (campaign / "stacked-lstm-1" / "blocks-test.safetensors").unlink()
    assert places(collect([campaign])) == []


def test_a_split_of_one_stretch_has_no_places(tmp_path: Path) -> None:
    for kind in ("stacked", "gated"):
        run = write_run(tmp_path / kind, f"modern-{kind}-lstm")
        bits = np.full(100, 2000.0)
        blocks.keep(run, blocks.Origin(TEXT, "test", STRETCH, "1" * 64), Score(bits.sum(), STRETCH, bits))
    assert places(collect([tmp_path])) == []


def test_units_and_what_the_table_says(campaign: Path) -> None:
    scored(campaign, "stacked", 1, (2.0, 2.0, 2.0, 2.0), "gru")
    scored(campaign, "gated", 1, (1.9, 2.5, 1.9, 1.8), "gru")
    rows = table(places(collect([campaign]))).rows
    assert rows[0][:2] == ["LSTM", "modern settings, 1 epoch (2 seeds)"]
    assert rows[0][4:6] == ["4 of 4", "0.1 M: +0.1500 (-0.5000 to +0.8000)"]
    assert rows[1][:2] == ["GRU", "modern settings, 1 epoch (one seed)"]
    assert rows[1][2:] == ["-0.0995", "+0.1000", "3 of 4", "0.1 M: -0.5000", "+0.1002"]


def test_the_picture(campaign: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    places_plot.plot(places(collect([campaign])), tmp_path / "places")
    drawing = (tmp_path / "places.svg").read_text()
    assert "millions of characters into the test split" in drawing and "LSTM, modern settings, 1 epoch" in drawing
    assert (tmp_path / "places.png").stat().st_size > 10_000


def test_gains_of_one_place_are_the_ratio_of_sums() -> None:
    one = Places("gru", ("modern", "3M"), {1: np.array([10.0, 1.0])}, np.array([100.0, 50.0]))
    assert one.total() == [pytest.approx(11 / 150)] and one.total(without=0) == [pytest.approx(0.02)]
