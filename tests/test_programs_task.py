"""Programs in the training loop: pure minibatches, sorting that changes nothing in expectation, resume."""

import dataclasses
import itertools
import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from gfrnn.cli import main
from gfrnn.errors import UsageError
from gfrnn.models.program_batch import collate
from gfrnn.recipes import find
from gfrnn.tasks.programs import make, split_of
from gfrnn.tasks.programs.config import ProgramsConfig
from gfrnn.tasks.programs.grid import grid_programs
from gfrnn.tasks.programs.task import Programs
from gfrnn.tasks.programs.training_data import TrainingPrograms
from gfrnn.training.config import Config
from gfrnn.training.runlog import read_metrics

SMALL = ProgramsConfig(programs=96, rows=8, pool=4, max_length=3, max_nesting=2, validate_programs=20)
RECIPES = [
    f"{kind}programs-{wiring}-{unit}"
    for kind, wiring, unit in itertools.product(("", "modern-"), ("stacked", "gated"), ("gru", "lstm"))
]


def small_task(**data: Any) -> Programs:
    config = find("programs-gated-gru").config
    model = dataclasses.replace(config.model, hidden_size=5, num_layers=2)
    return dataclasses.replace(config, data=dataclasses.replace(SMALL, **data), model=model).build_task()


def test_a_minibatch_is_a_function_of_seed_and_update() -> None:
    one, other = TrainingPrograms(SMALL, seed=3), TrainingPrograms(SMALL, seed=3)
    forwards = [one.batch(update) for update in range(20)]
    backwards = [other.batch(update) for update in reversed(range(20))]
    assert forwards == backwards[::-1]
    assert TrainingPrograms(SMALL, seed=4).batch(0) != forwards[0]


def test_an_epoch_reads_every_training_program_once_and_then_in_another_order() -> None:
    training = TrainingPrograms(SMALL, seed=3)
    epochs = [[p for u in range(12 * e, 12 * e + 12) for p in training.batch(u)] for e in range(2)]
    expected = sorted(make(SMALL.data_seed, i, SMALL.settings(), "train") for i in range(96))
    assert sorted(epochs[0]) == sorted(epochs[1]) == expected
    orders = [[training.index(96 * e + i) for i in range(96)] for e in range(2)]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(96))
    assert orders[0] != orders[1]
    assert {split_of(p.source) for p in expected} == {"train"}


def test_minibatches_hold_similar_lengths_in_random_order() -> None:
    training = TrainingPrograms(dataclasses.replace(SMALL, rows=16, pool=8, programs=1000), seed=1)
    spans = [[len(p.source) for p in training.batch(update)] for update in range(8)]
    assert sorted(itertools.chain(*sorted(spans, key=max))) == list(
        itertools.chain(*(sorted(s) for s in sorted(spans)))
    )
    assert [max(span) for span in spans] != sorted(max(span) for span in spans)


def test_sorting_leaves_the_expected_gradient_as_it_was() -> None:
    """The mean gradient over the minibatches of a pool, sorted or not: each program has the same weight in both."""
    gradients = []
    for pool in (12, 1):
        task = small_task(pool=pool)
        model = task.build_model(1).double()
        for update in range(12):
            nats, count, _ = task.loss(model, task.batch(1, update, slice(0, 8)), None)
            (nats / count).backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_slices_of_rows_add_up() -> None:
    task = small_task()
    model = task.build_model(1).double()
    whole, count, state = task.loss(model, task.batch(1, 5, slice(0, 8)), None)
    parts = [task.loss(model, task.batch(1, 5, rows), None) for rows in (slice(0, 3), slice(3, 8))]
    assert state is None
    assert sum(part[0] for part in parts).item() == pytest.approx(whole.item(), rel=1e-12)
    assert sum(part[1] for part in parts) == pytest.approx(count)


def test_a_curriculum_is_read_in_its_order() -> None:
    naive = dataclasses.replace(SMALL, curriculum="naive", pool=1, rows=16)
    training = TrainingPrograms(naive, seed=1)
    levels = [(p.nesting, p.length) for update in range(6) for p in training.batch(update)]
    assert levels == sorted(levels)
    assert levels[0] == (1, 1)
    assert levels[-1] == (2, 3)
    assert {(p.nesting, p.length) for p in training.batch(50)} == {(2, 3)}


@pytest.mark.parametrize("curriculum", ["mix", "baseline", "naive", "combined"])
@pytest.mark.parametrize("update", [0, 149])
def test_an_untrained_symbol_costs_the_logarithm_of_the_alphabet(curriculum: str, update: int) -> None:
    """Early and late in a curriculum, whose first programs have a fourth of the symbols that its last ones have."""
    task = small_task(programs=30_000, rows=200, pool=1, max_length=10, max_nesting=5, curriculum=curriculum)
    model = task.build_model(1)
    with torch.no_grad():
        nats, count, _ = task.loss(model, task.batch(1, update, slice(0, 200)), None)
    assert nats.item() / count == pytest.approx(math.log(13), rel=0.1)


def test_average_sizes_are_those_of_the_whole_curriculum() -> None:
    task = small_task(programs=30_000, rows=1, max_length=10, max_nesting=5, curriculum="naive")
    some = [task.training.program(index) for index in range(7, 30_000, 100)]
    assert task.target_symbols == pytest.approx(sum(len(p.target) + 1 for p in some) / len(some), rel=0.1)
    assert task.characters == pytest.approx(sum(len(p.source) + len(p.target) + 1 for p in some) / len(some), rel=0.1)


def test_the_sample_is_the_one_that_runs_were_started_with() -> None:
    """Recorded digests: they are part of a run's identity, and another sample would refuse to continue it."""
    config = find("programs-gated-gru").config
    found = {name: config.replace(curriculum=name).build_task().sample_sha256[:16] for name in ("mix", "baseline")}
    assert found == {"mix": "e59fbb16ab7ca2d8", "baseline": "e47c1f885ca4c67a"}


def test_validation_programs_are_their_own_split() -> None:
    task = small_task()
    assert {split_of(p.source) for p in task.validation_programs} == {"validation"}
    metrics = task.validate(task.build_model(1), False, lambda: None)
    assert set(metrics) >= {"symbol_accuracy", "exact_match", "nats_per_symbol"}
    assert metrics["programs"] == 20


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_builds_counts_and_learns(name: str) -> None:
    recipe = find(name)
    config: Config = recipe.config
    with torch.device("meta"):
        parameters = sum(p.numel() for p in config.build_task().build_model(1).parameters())
    assert parameters == recipe.parameters
    small = config.replace(hidden_size=6, rows=4, programs=64, pool=2, max_length=2, max_nesting=1)
    task = small.build_task()
    model = task.build_model(1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(2):
        nats, count, _ = task.loss(model, collate(task.training.batch(0)), None)
        losses.append(nats.item() / count)
        optimizer.zero_grad()
        (nats / count).backward()
        optimizer.step()
    assert losses[1] < losses[0]


def test_the_papers_settings() -> None:
    config = find("programs-gated-lstm").config
    data, optimizer, run = config.data, config.optimizer, config.run
    assert (data.programs, data.rows, data.max_length, data.max_nesting, data.curriculum) == (
        320_000,
        128,
        10,
        5,
        "mix",
    )
    assert (optimizer.optimizer, optimizer.learning_rate) == ("adam", 1e-3)
    assert (optimizer.momentum, optimizer.decay, optimizer.schedule) == (0.99, 0.99, "constant")
    assert run.epochs == 30
    assert run.patience > 0


@pytest.mark.parametrize("wrong", [{"max_length": 31}, {"max_nesting": 11}, {"rows": 0}, {"curriculum": "blend"}])
def test_settings_out_of_range(wrong: dict) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong)).replace("_", ".")):
        ProgramsConfig(**wrong)


def train(out: Path, updates: int, *more: str) -> int:
    words = "--hidden-size 6 --num-layers 2 --rows 4 --pool 2 --max-length 2 --max-nesting 2 --validate-programs 10"
    budget = f"--validate-every 3 --checkpoint-every 2 --log-every 1 --dropout 0.3 --updates {updates} --quiet"
    return main(["train", "programs-gated-lstm", "--out", str(out), *words.split(), *budget.split(), *more])


def weights(run: Path) -> bytes:
    return (run / "checkpoints" / (run / "LATEST").read_text().strip() / "model.safetensors").read_bytes()


def test_a_resumed_run_equals_an_undisturbed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert train(tmp_path / "whole", 7) == 0
    original, calls = Programs.loss, []

    def is_told_to_stop(self: Programs, model: Any, batch: Any, state: Any) -> Any:
        calls.append(1)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, model, batch, state)

    monkeypatch.setattr(Programs, "loss", is_told_to_stop)
    assert train(tmp_path / "cut", 7) == 75
    assert train(tmp_path / "cut", 7) == 0
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    assert len(calls) == 7
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "cut" / "metrics.jsonl").read_text().splitlines()]
    assert "valid" in kinds


def test_original_literals_hold_in_training_validation_and_test_cells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GFRNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("gfrnn.tasks.programs.grid.PER_CELL_QUICK", 2)
    sizes = "--hidden-size 3 --num-layers 1 --rows 4 --pool 2 --programs 40 --validate-programs 8 --updates 2"
    out = tmp_path / "run"
    words = ["train", "programs-gated-gru", *sizes.split(), "--literals", "original", "--out", str(out), "--json"]
    assert main(words) == 0
    assert "at most 2 ** 32" in capsys.readouterr().err
    config = Config.load(out / "config.yaml")
    task = config.build_task()
    assert task.training.settings.literals == "original"
    ideal = config.replace(literals="ideal").build_task()
    assert task.validation_programs != ideal.validation_programs
    assert "literals" not in ideal.identity()  # as runs from before the choice have it
    valid = [record for record in read_metrics(out) if record["kind"] == "valid"]
    assert {record["literals"] for record in valid} == {"original"}
    assert main(["eval", str(out), "--quick", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["literals"] == "original"
    assert report["programs_sha256"] != grid_programs(2)[1]
    assert main(["eval", str(out), "--quick", "--quiet"]) == 0
    assert "2 a cell, original literals" in capsys.readouterr().out
