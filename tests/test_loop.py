"""The loop: it learns, keeps the non-finite out, and ends when it should."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import files, run_tiny, tiny, write_text

from gfrnn.errors import DataError, NonFinite, UsageError
from gfrnn.models import CharLM
from gfrnn.recipes import find
from gfrnn.tasks.text.task import TextTask
from gfrnn.tasks.world import World
from gfrnn.training import loop
from gfrnn.training.budget import Budget
from gfrnn.training.run import train
from gfrnn.training.runlog import read_metrics


def test_it_learns(tmp_path: Path) -> None:
    result = run_tiny(tmp_path, updates=150, validate_every=50, length=20, rows=8, dropout=0.0, hidden_size=16)
    assert result["bpc"] < 5.0  # 7.68 when nothing is known
    best = CharLM.from_pretrained(tmp_path / "run")
    split = tiny(tmp_path).build_task().valid.tobytes()
    assert best.score(split).mean() == pytest.approx(result["bpc"], abs=1e-3)


def test_the_number_of_threads_does_not_change_where_a_run_starts(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            run_tiny(tmp_path, str(count), hidden_size=64, updates=1)
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(threads)
    one, two = (tmp_path / name / "checkpoints" / "step-0" / "model.safetensors" for name in "12")
    assert one.read_bytes() == two.read_bytes()


def test_every_seed_and_update_has_its_own_dropout() -> None:
    def dropout(seed: int, step: int) -> torch.Tensor:
        torch.manual_seed(World().seed(seed, step))
        return torch.rand(20)

    drawn = [dropout(seed, step) for seed in (1, 2, 1 + 2**32) for step in (0, 1)]
    assert len({tuple(numbers.tolist()) for numbers in drawn}) == 6
    assert torch.equal(dropout(1, 1), drawn[1])


def poison(monkeypatch: pytest.MonkeyPatch, steps: set[int], factor: float) -> list[int]:
    """Multiply the loss of some updates, and with it their gradients."""
    real, count = TextTask.loss, iter(range(10_000))
    hit: list[int] = []

    def fake(self: TextTask, model: CharLM, batch: torch.Tensor, state: Any) -> Any:
        nats, symbols, state = real(self, model, batch, state)
        step = next(count)
        if step not in steps:
            return nats, symbols, state
        hit.append(step)
        return nats * factor, symbols, state

    monkeypatch.setattr(TextTask, "loss", fake)
    return hit


@pytest.mark.parametrize("factor", [math.nan, math.inf])
def test_what_is_not_finite_never_reaches_the_weights(
    factor: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hit = poison(monkeypatch, {3, 4}, factor)
    before: dict[int, dict[str, torch.Tensor]] = {}
    real = loop.Trainer.update

    def watch(self: loop.Trainer) -> None:
        before[self.step] = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        real(self)

    monkeypatch.setattr(loop.Trainer, "update", watch)
    result = run_tiny(tmp_path)
    assert hit == [3, 4]
    assert result["skipped"] == 2
    assert result["halvings"] == 1  # one burst
    for step in (4, 5):
        assert all(torch.equal(before[3][name], before[step][name]) for name in before[3])
    assert any(not torch.equal(before[5][name], before[6][name]) for name in before[3])
    skips = [record for record in read_metrics(tmp_path / "run") if record["kind"] == "skip"]
    assert [(record["step"], record["halved"]) for record in skips] == [(3, True), (4, False)]


def test_it_gives_up_on_what_stays_not_finite_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, set(range(8, 100)), math.nan)
    with pytest.raises(NonFinite, match="not finite 20 times in a row, up to update 27"):
        run_tiny(tmp_path, updates=40, validate_every=5)
    model = CharLM.from_pretrained(tmp_path / "run")
    assert all(bool(p.isfinite().all()) for p in model.parameters())


def test_weights_beyond_all_numbers_are_never_saved(tmp_path: Path) -> None:
    with pytest.raises(NonFinite, match="not finite"):
        run_tiny(tmp_path, learning_rate=3e38, schedule="constant", clip=None, warmup=0, ema=0.0)
    found = loop.Checkpoints(tmp_path / "run").latest()
    assert found is not None
    assert all(bool(t.isfinite().all()) for t in found.model.values())


def test_an_exploding_gradient_halves_the_learning_rate_once_per_burst(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, {30, 31, 200}, 1e6)
    result = run_tiny(tmp_path, recipe="hutter-gated-lstm", updates=210, validate_every=210, explode=50.0, warmup=0)
    assert result["skipped"] == 3
    assert result["halvings"] == 2
    rates = [record["learning_rate"] for record in read_metrics(tmp_path / "run") if record["kind"] == "train"]
    assert rates[0] == 1e-3
    assert rates[-1] == 0.25e-3


def test_patience_ends_a_run_that_no_longer_improves(tmp_path: Path) -> None:
    result = run_tiny(tmp_path, updates=100, validate_every=2, learning_rate=1e-30, ema=0.0, patience=3)
    assert result["updates"] == 8
    assert result["best_update"] == 2
    assert result["bpc"] == pytest.approx(math.log2(205), abs=0.3)


def test_a_finished_run_is_not_trained_again(tmp_path: Path, told: list[str]) -> None:
    first = run_tiny(tmp_path)
    before = files(tmp_path / "run" / "checkpoints")
    again = train(tiny(tmp_path, updates=500), tmp_path / "run", given={"updates"})
    assert any("keeping the budget this run has (updates 12)" in words for words in told)
    assert again == {**first, "already_done": True}
    assert files(tmp_path / "run" / "checkpoints") == before


def test_a_finished_run_is_not_validated_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part: dict[str, Any] = {"validate_chars": 500, "validate_every": 1000}
    first = run_tiny(tmp_path, **part)
    assert first["validated_all"]
    monkeypatch.setattr(TextTask, "validate", lambda *_: pytest.fail("validated again"))
    assert run_tiny(tmp_path, **part) == {**first, "already_done": True}


def test_a_resumed_run_keeps_its_options_or_is_refused(tmp_path: Path) -> None:
    run_tiny(tmp_path)
    out = tmp_path / "run"
    with pytest.raises(UsageError, match="hidden_size was 6, is 9"):
        train(tiny(tmp_path, hidden_size=9), out, given={"hidden_size"})
    with pytest.raises(UsageError, match=r"started as modern-gated-lstm .*wiring was gated, is stacked"):
        train(tiny(tmp_path, "modern-stacked-lstm"), out)
    with pytest.raises(UsageError, match="already holds a run"):
        train(tiny(tmp_path), out, resume="never")
    assert train(tiny(tmp_path, keep=5), out, given={"keep"})["already_done"]
    text = Path(write_text(tmp_path))
    text.write_bytes(text.read_bytes()[:-1])
    with pytest.raises(DataError, match="the data changed since"):
        run_tiny(tmp_path)


def test_a_checkpoint_of_another_architecture_shows_the_difference(tmp_path: Path) -> None:
    run_tiny(tmp_path)
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace("wiring: gated", "wiring: feedback"))
    with pytest.raises(DataError, match="another architecture: wiring was gated, is feedback"):
        run_tiny(tmp_path)
    config.write_text(config.read_text().replace("hidden_size: 6", "hidden_size: six"))
    with pytest.raises(DataError, match=r"config.yaml: model: hidden_size must be of type int, got 'six'"):
        run_tiny(tmp_path)
    config.write_text("!!python/object/apply:os.system ['false']")
    with pytest.raises(DataError, match="cannot be read as a configuration"):
        run_tiny(tmp_path)


def test_budgets_in_every_unit() -> None:
    run = find("hutter-gated-lstm").config.replace(epochs=None).run

    def limit(**options: float) -> Budget:
        config = find("hutter-gated-lstm").config.replace(**{"epochs": None, **options})
        return Budget.of(config.run, characters=800, epoch=112.5)

    assert limit(updates=7) == Budget(7)
    assert limit(epochs=2.0) == Budget(225)
    assert limit(chars=1601) == Budget(3)
    assert limit(minutes=0.5) == Budget(None, 30.0)
    assert limit(updates=9, chars=8000, minutes=1.0) == Budget(9, 60.0)
    assert limit(updates=10, minutes=1.0).fraction(5, 45.0) == 0.75
    with pytest.raises(UsageError, match="no budget"):
        Budget.of(run, 800, 112.5)


def test_a_budget_of_minutes_ends_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10**6))
    monkeypatch.setattr(loop.time, "monotonic", lambda: float(next(ticks)))
    result = run_tiny(tmp_path, updates=None, minutes=2.0, validate_every=0)
    assert result["seconds"] >= 120
    assert 1 <= result["updates"] < 60
    with pytest.raises(UsageError, match="minutes must be greater than 0"):
        tiny(tmp_path, minutes=0.0)


def test_validating_a_part_ends_with_the_whole(tmp_path: Path) -> None:
    result = run_tiny(tmp_path, validate_chars=100)
    final = [record for record in read_metrics(tmp_path / "run") if record["kind"] == "final"]
    assert len(final) == 1
    assert result["bpc"] == final[0]["bpc"]
    assert final[0]["characters_validated"] == 1000
    parts = [r["characters_validated"] for r in read_metrics(tmp_path / "run") if r["kind"] == "valid"]
    assert parts == [100, 100, 100]


def test_the_state_is_carried_and_reset_on_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, fresh, seeds = TextTask.loss, [], set()

    def watch(self: TextTask, model: CharLM, batch: torch.Tensor, state: Any) -> Any:
        fresh.append(state is None)
        seeds.add(torch.initial_seed())
        if state is not None:
            assert all(not part.requires_grad and part.shape == (2, 3, 6) for part in state)
        return real(self, model, batch, state)

    monkeypatch.setattr(TextTask, "loss", watch)
    run_tiny(tmp_path, updates=9, reset_every=4)
    assert [step for step, was in enumerate(fresh) if was] == [0, 4, 8]
    assert len(seeds) == 9  # every update has dropout of its own
    fresh.clear()
    run_tiny(tmp_path, "other", updates=9, reset_every=0)
    assert [step for step, was in enumerate(fresh) if was] == [0]
