"""The loop: it learns, resumes bit for bit, keeps the non-finite out, and ends when it should."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import files, run_tiny, tiny, write_text

from gfrnn.errors import DataError, GfrnnError, Interrupted, NonFinite, Preempted, UsageError
from gfrnn.models import CharLM
from gfrnn.recipes import find
from gfrnn.tasks.hutter import Hutter
from gfrnn.tensorfile import unpack_tensors
from gfrnn.training import loop
from gfrnn.training.budget import Budget
from gfrnn.training.run import train
from gfrnn.training.runlog import read_metrics

CLOCK = ("seconds", "saved_at")


def outcome(run: Path) -> dict[str, Any]:
    """All a run comes to, apart from what the clock says and from how often it was interrupted."""
    last = run / "checkpoints" / (run / "LATEST").read_text().strip()
    counters = json.loads((last / "train.json").read_text())
    tensors = {
        name: unpack_tensors((last / name).read_bytes(), name) for name in ("model.safetensors", "train.safetensors")
    }
    history = [
        {key: value for key, value in record.items() if key not in CLOCK}
        for record in read_metrics(run)
        if record["kind"] != "resume"
    ]
    return {
        "tensors": {(file, name): t.numpy().tobytes() for file, part in tensors.items() for name, t in part.items()},
        "counters": {key: value for key, value in counters.items() if key not in CLOCK},
        "history": history,
        "best": files(run / "best"),
        "steps": sorted(path.name for path in (run / "checkpoints").iterdir()),
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("undisturbed")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    run_tiny(folder)
    torch.set_num_threads(threads)
    return outcome(folder / "run")


def test_two_runs_are_equal_and_everything_carried_is_in_play(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    run_tiny(tmp_path)
    assert outcome(tmp_path / "run") == undisturbed
    names = {name.split(".")[0] for _, name in undisturbed["tensors"]}
    assert names >= {"optimizer", "state", "average", "rng", "layer", "head"}
    assert undisturbed["counters"]["done"]
    assert [r["step"] for r in undisturbed["history"] if r["kind"] == "valid"] == [5, 10, 12]
    run_tiny(tmp_path, "other", seed=2)
    assert outcome(tmp_path / "other")["best"] != undisturbed["best"]


def stop_at(monkeypatch: pytest.MonkeyPatch, step: int, number: int, where: str = "batch") -> None:
    """Send a signal to this process when update `step` takes its minibatch, or at a validation."""
    real = getattr(Hutter, where)

    def fake(self: Hutter, *args: Any) -> Any:
        if where == "validate" or args[1] == step:
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)  # twice in a row: once is enough
        return real(self, *args)

    monkeypatch.setattr(Hutter, where, fake)


@pytest.mark.parametrize(
    ("step", "number", "where", "raised"),
    [
        (0, signal.SIGTERM, "batch", Preempted),
        (4, signal.SIGINT, "batch", Interrupted),
        (7, signal.SIGUSR1, "batch", Preempted),
        (11, signal.SIGTERM, "batch", Preempted),
        (5, signal.SIGTERM, "validate", Preempted),
    ],
)
def test_a_signal_saves_at_once_and_the_rest_is_bit_identical(
    step: int,
    number: int,
    where: str,
    raised: type[GfrnnError],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: dict[str, Any],
) -> None:
    with monkeypatch.context() as patch:
        stop_at(patch, step, number, where)
        with pytest.raises(raised, match=r"saved at update \d+; the same command continues"):
            run_tiny(tmp_path)
    saved = int((tmp_path / "run" / "LATEST").read_text().removeprefix("step-"))
    assert saved == (step if where == "validate" else step + 1)
    run_tiny(tmp_path)
    assert outcome(tmp_path / "run") == undisturbed


@pytest.mark.parametrize("recipe", ["hutter-stacked-gru", "modern-gated-gru"])
def test_other_optimizers_resume_bit_identically_too(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_tiny(tmp_path, "whole", recipe)
    with monkeypatch.context() as patch:
        stop_at(patch, 6, signal.SIGTERM)
        with pytest.raises(Preempted):
            run_tiny(tmp_path, "run", recipe)
    run_tiny(tmp_path, "run", recipe)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_kill_9_at_any_moment_and_resume_equals_an_undisturbed_run(tmp_path: Path) -> None:
    options = {"updates": 400, "validate_every": 50, "checkpoint_every": 7}
    run_tiny(tmp_path, "whole", **options)
    expected = outcome(tmp_path / "whole")
    code = (
        "import sys, torch; torch.set_num_threads(1); from pathlib import Path; import runs;"
        f"runs.run_tiny(Path({str(tmp_path)!r}), **{options!r})"
    )
    chance, metrics = random.Random(1), tmp_path / "run" / "metrics.jsonl"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    for records in (15, 60, 110):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, env=environment)
        while not metrics.exists() or metrics.read_bytes().count(b"\n") < records:
            time.sleep(0.01)
            assert process.poll() is None
        time.sleep(chance.uniform(0, 0.05))
        process.kill()
        process.wait()
    run_tiny(tmp_path, **options)
    resumed = [json.loads(line)["step"] for line in metrics.read_text().splitlines() if '"resume"' in line]
    assert len(resumed) == 3
    assert 0 < resumed[0] < resumed[1] < resumed[2] < 400
    assert outcome(tmp_path / "run") == expected


def test_a_best_folder_lost_in_a_crash_is_mended(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    run_tiny(tmp_path)
    best = tmp_path / "run" / "best"
    weights = (best / "model.safetensors").read_bytes()
    (best / "model.safetensors").write_bytes(weights[:-1])
    assert run_tiny(tmp_path)["already_done"]
    assert (best / "model.safetensors").read_bytes() == weights
    assert json.loads((best / "config.json").read_text())["training"]["bpc"] == undisturbed["counters"]["best"]


def test_a_damaged_checkpoint_is_stepped_over_and_the_end_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        stop_at(patch, 7, signal.SIGTERM)
        with pytest.raises(Preempted):
            run_tiny(tmp_path)
    newest = tmp_path / "run/checkpoints/step-8/train.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    train(tiny(tmp_path), tmp_path / "run")
    said = capsys.readouterr().out
    assert "step-8 is not used" in said
    assert "continuing at update 6" in said
    assert outcome(tmp_path / "run") == undisturbed


def test_logging_and_validation_do_not_change_the_weights(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    run_tiny(tmp_path, validate_every=12, log_every=1, checkpoint_every=1)
    ours = outcome(tmp_path / "run")["tensors"]
    assert ours == undisturbed["tensors"]


def test_it_learns(tmp_path: Path) -> None:
    result = run_tiny(tmp_path, updates=150, validate_every=50, length=20, rows=8, dropout=0.0, hidden_size=16)
    assert result["bpc"] < 5.0  # 7.68 when nothing is known
    best = CharLM.from_pretrained(tmp_path / "run")
    split = Hutter(tiny(tmp_path)).valid.tobytes()
    assert best.score(split).mean() == pytest.approx(result["bpc"], abs=1e-3)


def poison(monkeypatch: pytest.MonkeyPatch, steps: set[int], factor: float) -> list[int]:
    """Multiply the loss of some updates, and with it their gradients."""
    real, count = Hutter.loss, iter(range(10_000))
    hit: list[int] = []

    def fake(self: Hutter, model: CharLM, batch: torch.Tensor, state: Any) -> Any:
        nats, symbols, state = real(self, model, batch, state)
        step = next(count)
        if step not in steps:
            return nats, symbols, state
        hit.append(step)
        return nats * factor, symbols, state

    monkeypatch.setattr(Hutter, "loss", fake)
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


def test_a_finished_run_is_not_trained_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = run_tiny(tmp_path)
    before = files(tmp_path / "run" / "checkpoints")
    again = train(tiny(tmp_path, updates=500), tmp_path / "run", given={"updates"})
    assert "keeping the budget this run was started with (updates 12)" in capsys.readouterr().out
    assert again == {**first, "already_done": True}
    assert files(tmp_path / "run" / "checkpoints") == before


def test_a_resumed_run_keeps_its_options_or_is_refused(tmp_path: Path) -> None:
    run_tiny(tmp_path)
    out = tmp_path / "run"
    with pytest.raises(UsageError, match="hidden_size was 6, is 9"):
        train(tiny(tmp_path, hidden_size=9), out, given={"hidden_size"}, quiet=True)
    with pytest.raises(UsageError, match=r"started as modern-gated-lstm .*wiring was gated, is stacked"):
        train(tiny(tmp_path, "modern-stacked-lstm"), out, quiet=True)
    with pytest.raises(UsageError, match="already holds a run"):
        train(tiny(tmp_path), out, resume="never", quiet=True)
    assert train(tiny(tmp_path, keep=5), out, given={"keep"}, quiet=True)["already_done"]
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
    real, fresh, seeds = Hutter.loss, [], set()

    def watch(self: Hutter, model: CharLM, batch: torch.Tensor, state: Any) -> Any:
        fresh.append(state is None)
        seeds.add(torch.initial_seed())
        if state is not None:
            assert all(not part.requires_grad and part.shape == (2, 3, 6) for part in state)
        return real(self, model, batch, state)

    monkeypatch.setattr(Hutter, "loss", watch)
    run_tiny(tmp_path, updates=9, reset_every=4)
    assert [step for step, was in enumerate(fresh) if was] == [0, 4, 8]
    assert len(seeds) == 9  # every update has dropout of its own
    fresh.clear()
    run_tiny(tmp_path, "other", updates=9, reset_every=0)
    assert [step for step, was in enumerate(fresh) if was] == [0]
