"""A finished run that gets a larger budget: its schedule, its record, and the same bits however often it stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ranks import run_command, together, words
from runs import outcome, run_tiny, tiny
from test_resume import stop_at

from gfrnn.errors import DataError, Preempted, UsageError
from gfrnn.recipes import find
from gfrnn.tasks.text.task import TextTask
from gfrnn.training import loop
from gfrnn.training.budget import Stages
from gfrnn.training.config import Config, Stage
from gfrnn.training.run import train
from gfrnn.training.runlog import read_metrics


def extend(folder: Path, name: str = "run", given: tuple[str, ...] = ("updates",), **options: Any) -> dict[str, Any]:
    return train(tiny(folder, **options), folder / name, given=given, extend=True)


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the tiny run comes to when its 12 updates become 24 and nothing else happens."""
    folder = tmp_path_factory.mktemp("extended")
    run_tiny(folder)
    extend(folder, updates=24)
    return outcome(folder / "run")


def stages(schedule: str, warmup: int, *ends: int, updates: int) -> Stages:
    config = find("modern-gated-lstm").config.replace(schedule=schedule, warmup=warmup, epochs=None, updates=updates)
    earlier = tuple(Stage(updates=end, ended=end) for end in ends)
    return Stages(
        Config(config.recipe, config.task, config.data, config.model, config.optimizer, config.run, earlier), 1, 1
    )


def factors(of: Stages, stage: int, steps: range) -> list[float]:
    return [of.factor(stage, step, of.budgets[stage].fraction(step, 0.0)) for step in steps]


def test_the_rate_returns_within_the_warm_up_to_where_the_longer_schedule_is_and_falls_to_0_there() -> None:
    longer = stages("linear", 4, 20, updates=40)
    alone = stages("linear", 4, updates=40)
    assert factors(longer, 0, range(20)) == factors(stages("linear", 4, updates=20), 0, range(20))
    begin = factors(longer, 1, range(20, 24))
    assert begin == pytest.approx([0.5 / 4, 2 / 4 * 19 / 40, 3 / 4 * 18 / 40, 17 / 40])
    assert factors(longer, 1, range(23, 41)) == factors(alone, 0, range(23, 41))
    assert factors(longer, 1, range(40, 41)) == [0.0]


def test_without_a_warm_up_the_rate_is_there_at_once_and_a_constant_one_stays() -> None:
    assert factors(stages("cosine", 0, 20, updates=40), 1, range(20, 21)) == pytest.approx([0.5])
    assert set(factors(stages("constant", 5, 20, updates=40), 1, range(20, 40))) == {1.0}


def test_a_rate_on_its_way_back_goes_on_from_where_it_is_when_it_is_extended_again() -> None:
    of = stages("linear", 4, 20, 22, updates=40)
    (last,) = factors(of, 1, range(22, 23))
    assert last == 0.0  # a budget of 22 is used up at 22
    assert factors(of, 2, range(22, 24)) == pytest.approx([1 / 4 * 18 / 40, 2 / 4 * 17 / 40])


def test_it_goes_on_and_the_record_says_so(tmp_path: Path, extended: dict[str, Any]) -> None:
    run_tiny(tmp_path)
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    result = extend(tmp_path, updates=24)
    assert (result["updates"], result["already_done"]) == (24, False)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes().startswith(before)
    history = read_metrics(tmp_path / "run")
    said = [record for record in history if record["kind"] == "extend"]
    assert said == [{"kind": "extend", "step": 12, "before": {"updates": 12}, "after": {"updates": 24}}]
    rates = {record["step"]: record["learning_rate"] for record in history if record["kind"] == "train"}
    assert (rates[12], rates[24]) == pytest.approx((8e-3 / 12, 8e-3 / 24))  # of the last updates before 0
    assert (rates[14], rates[16]) == pytest.approx((8e-3 * 11 / 24, 8e-3 * 9 / 24))
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["run"]["updates"] == 24
    (earlier,) = config["earlier"]
    assert (earlier["updates"], earlier["ended"]) == (12, 12)
    assert outcome(tmp_path / "run") == extended
    assert [record["step"] for record in history if record["kind"] == "valid"] == [5, 10, 12, 15, 20, 24]


@pytest.mark.parametrize("stop", [12, 17, 19])
@pytest.mark.parametrize("again", [True, False])
def test_stopped_and_continued_it_ends_with_the_same_bits(
    stop: int, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extended: dict[str, Any]
) -> None:
    run_tiny(tmp_path)
    with monkeypatch.context() as patch:
        stop_at(patch, stop)
        with pytest.raises(Preempted):
            extend(tmp_path, updates=24)
    if again:  # the same command, as after any stop
        extend(tmp_path, updates=24)
    else:
        run_tiny(tmp_path)
    assert outcome(tmp_path / "run") == extended
    assert extend(tmp_path, updates=24)["already_done"]
    assert outcome(tmp_path / "run") == extended


def test_a_crash_before_the_first_checkpoint_of_the_extension_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extended: dict[str, Any]
) -> None:
    run_tiny(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(TextTask, "batch", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            extend(tmp_path, updates=24)
    run_tiny(tmp_path)
    assert outcome(tmp_path / "run") == extended


def test_from_a_checkpoint_of_before_the_extension_both_budgets_are_gone_through_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extended: dict[str, Any]
) -> None:
    run_tiny(tmp_path, keep=5)
    with monkeypatch.context() as patch:
        stop_at(patch, 13)
        with pytest.raises(Preempted):
            extend(tmp_path, updates=24)
    for newer in (14, 12):
        (tmp_path / "run" / "checkpoints" / f"step-{newer}" / "train.safetensors").write_bytes(b"")
    assert run_tiny(tmp_path)["updates"] == 24
    ours = outcome(tmp_path / "run")
    assert ours["tensors"] == extended["tensors"]
    assert ours["history"] == extended["history"]


def test_it_can_be_extended_again_and_in_another_unit(tmp_path: Path) -> None:
    run_tiny(tmp_path)
    extend(tmp_path, updates=16)
    result = extend(tmp_path, given=("chars",), updates=None, chars=20 * 21)
    assert result["updates"] == 20
    config = Config.load(tmp_path / "run" / "config.yaml")
    assert [stage.budget for stage in config.earlier] == [{"updates": 12}, {"updates": 16}]
    assert config.run.budget == {"chars": 420}


def test_a_run_out_of_patience_goes_on_with_fresh_patience(tmp_path: Path) -> None:
    options: dict[str, Any] = {"validate_every": 2, "learning_rate": 1e-30, "ema": 0.0, "patience": 3}
    assert run_tiny(tmp_path, updates=100, **options)["updates"] == 8
    with pytest.raises(UsageError, match="updates 50 is not more than the updates 100 it had"):
        extend(tmp_path, updates=50, **options)
    assert extend(tmp_path, updates=200, **options)["updates"] == 14


def test_a_budget_of_minutes_counts_from_the_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10**6))
    monkeypatch.setattr(loop.time, "monotonic", lambda: float(next(ticks)))
    run_tiny(tmp_path, updates=None, minutes=1.0, validate_every=0)
    with pytest.raises(UsageError, match=r"minutes 0.5 is not more than the minutes 1.0 it had"):
        extend(tmp_path, given=("minutes",), updates=None, minutes=0.5, validate_every=0)
    result = extend(tmp_path, given=("minutes",), updates=None, minutes=2.0, validate_every=0)
    assert 120 <= result["seconds"] < 150


def test_the_whole_split_is_validated_at_each_end(tmp_path: Path) -> None:
    run_tiny(tmp_path, validate_chars=100)
    extend(tmp_path, updates=24, validate_chars=100)
    assert [record["step"] for record in read_metrics(tmp_path / "run") if record["kind"] == "final"] == [12, 24]


def test_what_cannot_be_extended_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    with pytest.raises(UsageError, match="holds no run that could go on"):
        extend(tmp_path, updates=24)
    with monkeypatch.context() as patch:
        stop_at(patch, 7)
        with pytest.raises(Preempted):
            run_tiny(tmp_path)
    with pytest.raises(
        UsageError, match=r"not finished \(it is at update 8, its budget is updates 12\): without --extend"
    ):
        extend(tmp_path, updates=24)
    run_tiny(tmp_path)
    for updates in (12, 11):
        with pytest.raises(UsageError, match=f"updates {updates} is not more than the updates 12 it had"):
            extend(tmp_path, updates=updates)
    with pytest.raises(UsageError, match="--extend needs the larger budget"):
        extend(tmp_path, given=())
    with pytest.raises(UsageError, match=r"other options \(hidden_size was 6, is 9\)"):
        extend(tmp_path, given=("updates", "hidden_size"), updates=24, hidden_size=9)
    train(tiny(tmp_path, updates=24), tmp_path / "run", given={"updates"})
    assert any(
        "keeping the budget this run has (updates 12); --extend gives it a larger one" in words for words in told
    )
    assert Config.load(tmp_path / "run" / "config.yaml").earlier == ()


def test_a_configuration_that_forgot_the_extension_is_refused(tmp_path: Path) -> None:
    run_tiny(tmp_path)
    old = (tmp_path / "run" / "config.yaml").read_bytes()
    extend(tmp_path, updates=24)
    (tmp_path / "run" / "config.yaml").write_bytes(old)
    with pytest.raises(DataError, match=r"of extension 1, which config.yaml lacks"):
        run_tiny(tmp_path)
    (tmp_path / "run" / "config.yaml").write_bytes(old + b"earlier: 7\n")
    with pytest.raises(DataError, match="earlier must be a list of budgets"):
        run_tiny(tmp_path)


def test_two_processes_extend_like_one(tmp_path: Path) -> None:
    line = [*words(tmp_path), "--out", str(tmp_path / "run")]
    longer = [*words(tmp_path, updates=24), "--out", str(tmp_path / "run"), "--extend"]
    for command in (line, longer):
        assert together(run_command, [command, command]) == [(0, ""), (0, "")]
    assert [r["step"] for r in read_metrics(tmp_path / "run") if r["kind"] == "extend"] == [12]
    assert (tmp_path / "run" / "LATEST").read_text() == "step-24\n"
