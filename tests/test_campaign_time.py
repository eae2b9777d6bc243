"""How long a campaign will take: sizes of runs, rates, and what is left."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
from campaigns import Trained, tiny_plan
from runs import write_text

from gfrnn.campaign import estimate
from gfrnn.campaign.plan import Budget, Planned, plan
from gfrnn.campaign.runs import RunState, look
from gfrnn.recipes import find


def test_sizes_of_runs(tmp_path: Path) -> None:
    data = write_text(tmp_path)
    run = plan(["text"], budget=Budget.parse("2 epochs"), options={"data": data, "rows": 3, "length": 7})[0]
    size = estimate.size_of(run)
    assert size.updates == math.ceil(2 * 18_000 / 21)
    assert size.characters == size.updates * 21
    assert (size.validation, size.evaluation) == (20 * 1000, 1000)
    programs = plan(["heatmaps"], "paper", options={"programs": 1280, "validate_programs": 10})[0]
    assert estimate.size_of(programs).updates == 300


def test_work_is_what_a_character_multiplies() -> None:
    gated, stacked = (find(f"modern-{name}-lstm").config.model for name in ("gated", "stacked"))
    assert estimate.work("hutter", gated) == 953_120  # as gfrnn.bench.accounting has it
    H = 191
    assert estimate.work("hutter", stacked) == (3 + 2) * 4 * H * H + 3 * H * 205


def test_rates_are_measured_scaled_or_probed(
    one: tuple[Path, Planned], trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "PROBE_SECONDS", 0.05)
    stacked, feedback, gated = trained[0]
    rates = estimate.Rates(tmp_path, threads=1)
    rate, source = rates.of(stacked)
    assert (rate, source) == (look(tmp_path, stacked).rate, "measured")
    scaled, source = rates.of(gated)
    assert source == f"scaled from {stacked.name}"
    works = [estimate.work("hutter", run.config.model) for run in (stacked, gated)]
    assert scaled == pytest.approx(rate * works[0] / works[1])
    for folder, threads in ((tmp_path / "empty", 1), (tmp_path, 2)):  # nothing there; nothing with two threads
        rates = estimate.Rates(folder, threads)
        probed, source = rates.of(stacked)
        assert (probed > 0, source) == (True, "a probe")
        assert rates.of(feedback)[1] == "scaled from a probe"


def test_rates_of_one_precision_say_nothing_of_the_other(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates, first = estimate.Rates(tmp_path, 1), trained[0][0]
    exact, rounding = (
        dataclasses.replace(first, options=(*first.options, ("precision", products)))
        for products in ("float32", "bfloat16")
    )
    rates.learn(exact.config, 100.0, "a run")
    probed = []
    monkeypatch.setattr(estimate, "probe", lambda config, threads: probed.append(config.run.precision) or 200.0)
    assert rates.of(exact) == (100.0, "measured")
    assert rates.of(rounding) == (200.0, "a probe")
    assert probed == ["bfloat16"]


def test_a_model_too_heavy_for_a_probe_is_scaled_from_a_lighter_one() -> None:
    large = find("hutter-large").config
    assert estimate.work("hutter", large.model) > estimate.PROBE_WORK
    tried = estimate.light(large)
    assert (tried.data, tried.model) == (large.data, find("hutter-gated-lstm").config.model)
    assert estimate.light(tried) == tried


def test_what_is_left_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tiny_plan(tmp_path, ["ablation"])[0]
    rates = estimate.Rates(tmp_path, 1)
    for source in ("measured", "a probe"):
        monkeypatch.setattr(rates, "of", lambda planned, source=source: (10.0, source))
        validations = {"measured": 0, "a probe": 2 * 1000}[source]  # at updates 5 and 10

        def left(state: Any, updates: int = 0) -> float | None:
            found = estimate.estimate(run, RunState(tmp_path, state, updates=updates), rates)
            return None if found is None else found.seconds

        assert left("missing") == pytest.approx((252 + validations / 3 + 1000 / 3) / 10)
        assert left("stopped", 6) == pytest.approx((126 + validations / 6 + 1000 / 3) / 10)
        assert left("trained", 12) == pytest.approx(1000 / 3 / 10)
        assert left("finished") is left("foreign") is None
