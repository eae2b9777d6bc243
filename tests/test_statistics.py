"""The report's statistics against scipy's, and their behaviour at the edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gfrnn.report.statistics import (
    OF_A_CELL,
    bootstrap_rates,
    bootstrap_ratio,
    mcnemar,
    mean_interval,
    merged,
    t_cdf,
    t_quantile,
)
from gfrnn.tasks.programs.intervals import clustered

stats: Any


@pytest.fixture(scope="module", autouse=True)
def _scipys() -> None:
    """Not before the first test runs: it takes seconds, and every process of the suite reads every file."""
    global stats
    from scipy import stats


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 10, 29, 100])
def test_t_is_scipys(degrees: int) -> None:
    for t in (0.0, 0.3, 1.0, 2.5, 12.0):
        assert t_cdf(t, degrees) == pytest.approx(stats.t.cdf(t, degrees), abs=1e-12)
    for p in (0.5, 0.9, 0.975, 0.995):
        assert t_quantile(p, degrees) == pytest.approx(stats.t.ppf(p, degrees), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_the_interval_of_a_mean_is_scipys(count: int) -> None:
    values = np.random.default_rng(count).normal(0.02, 0.01, count)
    found = mean_interval(list(values))
    expected = stats.t.interval(0.95, count - 1, loc=values.mean(), scale=stats.sem(values))
    assert found is not None and found.count == count
    assert (found.low, found.high) == pytest.approx(expected)
    assert found.value == pytest.approx(values.mean())


def test_one_seed_has_no_interval() -> None:
    assert mean_interval([1.8]) is None
    assert mean_interval([]) is None


def test_mcnemar_is_the_exact_binomial_test() -> None:
    for only_a, only_b in ((0, 0), (0, 5), (3, 3), (2, 10), (60, 100), (1000, 1300)):
        n = only_a + only_b
        expected = stats.binomtest(only_a, n, 0.5).pvalue if n else 1.0
        assert mcnemar(only_a, only_b) == pytest.approx(expected, rel=1e-6)
        assert mcnemar(only_b, only_a) == mcnemar(only_a, only_b)


def test_the_bootstrap_of_a_ratio_is_scipys() -> None:
    generator = np.random.default_rng(3)
    sizes = generator.integers(800, 1200, 100).astype(float)
    gains = sizes * generator.normal(0.02, 0.03, 100)
    found = bootstrap_ratio(gains, sizes)
    expected = stats.bootstrap(
        (gains, sizes),
        lambda g, s, axis=-1: g.sum(axis) / s.sum(axis),
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=20_000,
        rng=1,
    ).confidence_interval
    width = expected.high - expected.low
    assert found.value == pytest.approx(gains.sum() / sizes.sum())
    assert found.low == pytest.approx(expected.low, abs=0.05 * width)
    assert found.high == pytest.approx(expected.high, abs=0.05 * width)
    assert bootstrap_ratio(gains, sizes) == found  # the same every time


def test_pairs_matter_more_than_the_noise_they_share() -> None:
    """Two models that both find the same blocks hard differ by little, and that is seen."""
    hard = np.random.default_rng(1).normal(2.0, 0.5, 100) * 1000
    better = bootstrap_ratio(hard - (hard - 10), np.full(100, 1000.0))
    assert better.excludes_zero
    assert (better.low, better.high) == pytest.approx((0.01, 0.01))


def test_a_bootstrap_needs_items() -> None:
    for gains, sizes in (([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([], [])):
        with pytest.raises(ValueError, match="two or more items"):
            bootstrap_ratio(gains, sizes)


def test_blocks_are_merged_to_the_last_one() -> None:
    values = np.arange(5003.0)
    assert merged(values, 50).sum() == values.sum()
    assert len(merged(values, 50)) == 101


def test_the_bootstrap_of_two_rates_is_scipys() -> None:
    generator = np.random.default_rng(5)
    chances = generator.integers(0, 6, (150, 2))
    hits = generator.binomial(chances, (0.8, 0.6))
    a, b = (np.stack([hits[:, k], chances[:, k]], axis=1) for k in (0, 1))
    found = bootstrap_rates(a, b)
    expected = stats.bootstrap(
        (hits[:, 0], chances[:, 0], hits[:, 1], chances[:, 1]),
        lambda p, n, q, m, axis=-1: p.sum(axis) / n.sum(axis) - q.sum(axis) / m.sum(axis),
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=20_000,
        rng=1,
    ).confidence_interval
    width = expected.high - expected.low
    rates = hits.sum(0) / chances.sum(0)
    assert found.value == pytest.approx(rates[0] - rates[1])
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.05 * width)
    with pytest.raises(ValueError, match="a chance for both"):
        bootstrap_rates(a, np.zeros_like(b))


def test_the_interval_of_a_cell_holds_the_truth_and_is_narrow() -> None:
    """Two results that share what is hard: half the programs neither gets, and b gains one symbol in ten."""
    rng = np.random.default_rng(8)
    inside, rounds, widths, unpaired = 0, 400, [], []
    symbols = np.full(150, 8)
    for _ in range(rounds):
        gets = rng.random(150) < 0.5
        a = 4 * gets
        b = a + gets * rng.binomial(4, 0.1, 150)
        gain = bootstrap_ratio(b - a, symbols, resamples=OF_A_CELL)
        inside += gain.low <= 0.5 * 0.4 / 8 <= gain.high
        widths.append(gain.high - gain.low)
        alone = clustered(b.tolist(), symbols.tolist())
        unpaired.append(alone.high - alone.low)
    assert 0.92 <= inside / rounds <= 0.98
    assert np.mean(widths) < 0.3 * np.mean(unpaired)
    assert not bootstrap_ratio([0, 0], [2, 2]).excludes_zero
    assert bootstrap_ratio([2, 2, 1, 2], [2] * 4).excludes_zero
