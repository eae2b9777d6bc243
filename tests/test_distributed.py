"""Several processes train as one would: the same numbers, the same decisions, the same error."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import SURE, ask, free_port, run_command, together, words
from runs import outcome, run_tiny, tiny
from tolerance import assert_close

from gfrnn.errors import GfrnnError, UsageError
from gfrnn.recipes import find
from gfrnn.tasks.text.task import TextTask
from gfrnn.training import checkpoint, distributed, loop, run, whereabouts
from gfrnn.training.run import train
from gfrnn.training.runlog import read_metrics

PROGRAMS = {
    "hidden_size": 5,
    "num_layers": 2,
    "rows": 5,
    "programs": 40,
    "pool": 2,
    "max_length": 3,
    "max_nesting": 2,
    "validate_programs": 21,
    "epochs": None,
    "updates": 6,
    "validate_every": 3,
    "checkpoint_every": 2,
}


def traced(rank: int, folder: Path, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Train; what every update saw, what came of it, and the trainer's weights."""
    seen: list[tuple[float, dict[str, torch.Tensor]]] = []
    trainers: list[loop.Trainer] = []
    real = loop.optim.gradient_norm

    def watch(parameters: list[torch.nn.Parameter]) -> float:
        norm = real(parameters)
        seen.append((norm, {n: p.grad.clone() for n, p in zip(trainers[0].named, parameters, strict=True)}))  # type: ignore[union-attr]
        return norm

    class Traced(loop.Trainer):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            trainers.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.optim, "gradient_norm", watch)
        patch.setattr(run, "Trainer", Traced)
        recipe = options.get("recipe", "modern-gated-lstm")
        chosen = {key: value for key, value in options.items() if key != "recipe"}
        config = tiny(folder, recipe, **{**SURE, **chosen}) if "programs" not in chosen else programs(recipe, chosen)
        train(config, folder / name)
    (trainer,) = trainers
    return {
        "norms": [norm for norm, _ in seen],
        "gradients": {key: value.numpy() for key, value in seen[0][1].items()},
        "weights": {key: value.numpy() for key, value in trainer.model.state_dict().items()},
        "rows": len(loop.flatten(trainer.state)[0][0]) if trainer.state is not None else None,
        "counters": vars(trainer.counters),
    }


def programs(recipe: str, options: dict[str, Any]) -> Any:
    return find(recipe).config.replace(**options)


def close(actual: dict[str, Any], expected: dict[str, Any], what: str) -> None:
    assert actual.keys() == expected.keys()
    for name in expected:
        assert_close(actual[name], expected[name], what=f"{what} {name}")


@pytest.mark.parametrize(
    ("size", "options", "shares"),
    [
        (2, {"rows": 4}, [2, 2]),
        (2, {"rows": 3, "recipe": "hutter-gated-gru"}, [1, 2]),
        (3, {"rows": 5}, [1, 2, 2]),
        (2, {**PROGRAMS, "recipe": "modern-programs-gated-lstm"}, [None, None]),
    ],
    ids=["dividing", "not dividing", "three", "programs"],
)
def test_many_processes_equal_one(size: int, options: dict[str, Any], shares: list[int], tmp_path: Path) -> None:
    (alone,) = together(traced, tmp_path, "alone", options, size=1)
    several = together(traced, tmp_path, "several", options, size=size)
    assert [one["rows"] for one in several] == shares
    for one in several:
        close(one["gradients"], alone["gradients"], "gradient")
        close(one["weights"], alone["weights"], "weight")
        assert_close(torch.tensor(one["norms"]), alone["norms"], what="norms")
        assert all((one["weights"][n] == several[0]["weights"][n]).all() for n in one["weights"])
        assert {**one["counters"], "seconds": 0} == {**several[0]["counters"], "seconds": 0}
    together(traced, tmp_path, "again", options, size=size)
    assert outcome(tmp_path / "again") == outcome(tmp_path / "several")
    records, expected = (read_metrics(tmp_path / name) for name in ("several", "alone"))
    assert [record["kind"] for record in records] == [record["kind"] for record in expected]
    assert records[0]["processes"] == size and "processes" not in expected[0]
    for record, other in zip(records, expected, strict=True):
        for key in {"nats", "bpc", "nats_per_symbol", "symbol_accuracy", "learning_rate"} & record.keys():
            assert_close(torch.tensor(record[key]), other[key], what=f"{record['kind']} {record['step']} {key}")


def trained(rank: int, folder: Path, name: str, options: dict[str, Any], signals: dict[int, tuple[int, str]]) -> str:
    """Train, with a signal to some ranks at a step's minibatch or at a validation; how it ended."""
    real_batch, real_nats = TextTask.batch, TextTask.validate
    step, where = signals.get(rank, (-1, ""))

    def batch(self: TextTask, seed: int, at: int, rows: slice) -> Any:
        if where == "batch" and at == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return real_batch(self, seed, at, rows)

    def validate(self: TextTask, model: Any, full: bool, tick: Any, world: Any) -> Any:
        calls = []

        def ticking() -> None:
            calls.append(1)
            if where == "validate" and len(calls) == 3:  # in the middle of it
                os.kill(os.getpid(), signal.SIGTERM)
            tick()

        return real_nats(self, model, full, ticking, world)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextTask, "batch", batch)
        patch.setattr(TextTask, "validate", validate)
        try:
            run_tiny(folder, name, **options)
        except GfrnnError as error:
            return f"{type(error).__name__}: {error}"
    return "done"


def test_a_signal_to_one_stops_all_at_the_same_update_and_the_rest_is_bit_identical(tmp_path: Path) -> None:
    whole: dict[str, Any] = {}  # dropout and everything else in play
    assert together(trained, tmp_path, "whole", whole, {}) == ["done"] * 2
    for rank, (step, where), saved in ((1, (7, "batch"), 8), (1, (0, "validate"), 5), (0, (11, "batch"), 12)):
        name = f"{where}{rank}{step}"
        said = together(trained, tmp_path, name, whole, {rank: (step, where)})
        assert said == [f"Preempted: saved at update {saved}; the same command continues"] * 2
        assert together(trained, tmp_path, name, whole, {}) == ["done"] * 2
        assert outcome(tmp_path / name) == outcome(tmp_path / "whole")


def test_the_world_may_change_its_size(tmp_path: Path) -> None:
    options = {**SURE, "rows": 5, "reset_every": 0, "ema": 0.0}
    assert together(trained, tmp_path, "alone", options, {}, size=1) == ["done"]
    for size, step in ((2, 3), (1, 6)):
        (said, *_) = together(trained, tmp_path, "run", options, {0: (step, "batch")}, size=size)
        assert said == f"Preempted: saved at update {step + 1}; the same command continues"
    assert together(trained, tmp_path, "run", options, {}, size=2) == ["done"] * 2
    lines = (json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    assert [(r["step"], r.get("processes", 1)) for r in lines if r["kind"] in ("start", "resume")] == [
        (0, 2),
        (4, 1),
        (7, 2),
    ]
    ends = [checkpoint.Checkpoints(tmp_path / name).latest() for name in ("run", "alone")]
    assert ends[0] is not None and ends[1] is not None
    for part in ("model", "tensors"):
        mine, theirs = (getattr(end, part) for end in ends)
        close({k: v for k, v in mine.items() if k != "rng"}, {k: v for k, v in theirs.items() if k != "rng"}, part)


def poisoned(rank: int, folder: Path, name: str, where: str, factor: float, steps: tuple[int, ...]) -> dict[str, Any]:
    """Train with the last process's loss, gradient or input multiplied at some updates."""
    real, count = TextTask.loss, iter(range(10_000))

    def loss(self: TextTask, model: Any, batch: torch.Tensor, state: Any) -> Any:
        at = next(count)
        bad = rank == 1 and at in steps
        if bad and where == "state":
            state = tuple(part * factor for part in state)
        nats, symbols, state = real(self, model, batch, state)
        if bad and where == "gradient":
            nats = nats * factor + (nats * (1 - factor)).detach()
        return (nats * factor if bad and where == "loss" else nats), symbols, state

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextTask, "loss", loss)
        return traced(rank, folder, name, {"updates": 30, "validate_every": 30, "reset_every": 0, "rows": 4})


@pytest.mark.parametrize(
    ("where", "factor", "skipped"),
    [("loss", math.nan, 1), ("gradient", math.inf, 1), ("state", math.nan, 1), ("gradient", 1e6, 1)],
)
def test_what_goes_wrong_in_one_process_is_skipped_by_all(
    where: str, factor: float, skipped: int, tmp_path: Path
) -> None:
    several = together(poisoned, tmp_path, "run", where, factor, (24,))
    for one in several:
        assert (one["counters"]["skipped"], one["counters"]["halvings"]) == (skipped, 1)
        assert all((one["weights"][n] == several[0]["weights"][n]).all() for n in one["weights"])
    (skip,) = [record for record in read_metrics(tmp_path / "run") if record["kind"] == "skip"]
    assert (skip["step"], skip["halved"]) == (24, True)


def full_disk(rank: int, lines: list[list[str]]) -> tuple[int, str]:
    real = checkpoint.write_folder

    def full(folder: Path, files: Any) -> None:
        if "step-9" in str(folder):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "model.safetensors"))
        real(folder, files)

    checkpoint.write_folder = full
    return run_command(rank, lines)


def hopeless(rank: int, lines: list[list[str]]) -> tuple[int, str]:
    """A weight of one process is not a number, from the start."""
    real = loop.Trainer.run

    def broken(self: loop.Trainer) -> Any:
        if rank == 1:
            with torch.no_grad():
                self.parameters[-1][0] = math.nan
        self.step = 1
        return real(self)

    loop.Trainer.run = broken  # type: ignore[method-assign]
    return run_command(rank, lines)


def other_code(rank: int, lines: list[list[str]]) -> tuple[int, str]:
    real = run.origin
    run.origin = lambda config: {**real(config), "gfrnn": f"0.{rank}"}
    return run_command(rank, lines)


def test_an_error_of_one_is_the_error_of_all_and_is_said_once(tmp_path: Path) -> None:
    good, out = words(tmp_path, rows=4), ["--out", str(tmp_path / "run")]
    missing, wider = words(tmp_path, rows=4, data=tmp_path / "none"), words(tmp_path, rows=4, hidden_size=9)
    (tmp_path / "short.txt").write_bytes(Path(good[good.index("--data") + 1]).read_bytes()[:-1])
    shorter = words(tmp_path, rows=4, data=tmp_path / "short.txt")

    def said(lines: list[list[str]], how: Any = run_command) -> tuple[int, str]:
        answers = together(how, [[*line, *out] for line in lines])
        assert [code for code, _ in answers] == [answers[0][0]] * 2, answers
        assert answers[1][1] == ""
        assert answers[0][1].startswith("gfrnn: ") and answers[0][1].count("\n") == 1
        return answers[0]

    assert said([good, missing]) == (3, f"gfrnn: process 1: {tmp_path}/none does not exist\n")
    code, sentence = said([good, wider])
    assert code == 2
    assert "process 1 has a configuration or code other than process 0: hidden_size is 9, there 6" in sentence
    code, sentence = said([good, good], other_code)
    assert (code, "gfrnn is '0.1', there '0.0'" in sentence) == (2, True)
    code, sentence = said([good, shorter])
    assert code == 2
    assert "process 1 has data other than process 0: bytes is 19999, there 20000" in sentence
    few = words(tmp_path, rows=1)
    assert said([few, few]) == (
        2,
        "gfrnn: 1 rows are too few for 2 processes: each needs a row of the minibatch\n",
    )
    with checkpoint.lock(tmp_path / "run"):
        code, sentence = said([good, good])
        assert (code, "in use by another process" in sentence) == (2, True)
    assert not (tmp_path / "run" / "checkpoints").exists()  # nothing of all this began
    code, sentence = said([good, good], full_disk)
    assert (code, "no space left" in sentence) == (3, True)
    assert run_tiny(tmp_path, **SURE, rows=4)["updates"] == 12  # what was saved before is whole
    out[1] = str(tmp_path / "hopeless")
    code, sentence = said([words(tmp_path, rows=4, updates=99, validate_every=99, checkpoint_every=99)] * 2, hopeless)
    assert (code, "not finite 20 times in a row" in sentence) == (4, True)


def gone(rank: int, lines: list[list[str]]) -> tuple[int, str]:
    """One process dies without a word in the middle of training."""
    real = TextTask.batch

    def batch(self: TextTask, seed: int, at: int, rows: slice) -> Any:
        if rank == 1 and at == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, seed, at, rows)

    TextTask.batch = batch  # type: ignore[method-assign]
    return run_command(rank, lines)


def test_a_process_that_is_gone_without_a_word_is_noticed(tmp_path: Path) -> None:
    line = [*words(tmp_path, rows=4), "--out", str(tmp_path / "run")]
    (code, sentence), nothing = together(gone, [line, line])
    assert (code, nothing) == (1, None)
    assert sentence.startswith("gfrnn: process 0 lost contact with another one")
    assert sentence.endswith("the same command continues from the last checkpoint\n")
    assert (tmp_path / "run" / "LATEST").read_text() == "step-3\n"


def order_of_sending(rank: int, folder: Path) -> list[tuple[int, bool]]:
    """The size of every message of gradients, and whether the layer's gradients were there when it was sent."""
    real, sent = distributed.dist.all_reduce, []
    with distributed.join() as world:
        model = tiny(folder).build_task().build_model(1)
        world.watch(model)

        def watch(flat: torch.Tensor, **options: Any) -> Any:
            sent.append((flat.numel(), model.layer.weight_ih_l0.grad is not None))
            return real(flat, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(distributed.dist, "all_reduce", watch)
            loss, _ = model.loss(torch.zeros(3, 2, dtype=torch.int64), torch.zeros(3, 2, dtype=torch.int64))
            loss.backward()
            world.sum_gradients(model.parameters())
    return sent


def test_the_output_layer_is_sent_while_the_rest_is_still_at_work(tmp_path: Path) -> None:
    model = tiny(tmp_path).build_task().build_model(1)
    head = sum(p.numel() for p in model.head.parameters())
    rest = sum(p.numel() for p in model.parameters()) - head
    assert together(order_of_sending, tmp_path) == [[(head, False), (rest, True)]] * 2


def seeds(rank: int) -> list[int]:
    with distributed.join() as world:
        return [world.seed(1, step) % 2**32 for step in range(3)]  # torch's generator looks at 32 bits


def test_every_process_and_update_has_dropout_of_its_own() -> None:
    assert len({seed for some in together(seeds, size=3) for seed in some}) == 9


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"RANK": "0"}, "RANK is set but WORLD_SIZE is not"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is set but RANK is not"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "of WORLD_SIZE=2 processes the ranks are 0 to 1"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK is -1"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK must be a whole number, got 'one'"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "here"}, "MASTER_PORT not set: where do the 2 processes meet"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "99999"}, "must be 1 to 65535"),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "99", "GFRNN_TIMEOUT": "soon"},
            "GFRNN_TIMEOUT must be seconds",
        ),
    ],
)
def test_an_environment_that_makes_no_sense(
    environment: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=sentence):
        distributed.join()


def test_one_process_of_torchrun_is_a_world_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert whereabouts.find() is None
    assert type(distributed.join()) is distributed.World


def lonely(rank: int, port: int) -> str:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"MASTER_PORT": str(port), "GFRNN_TIMEOUT": "1"}
    try:
        distributed.join()
    except UsageError as error:
        return str(error)
    return "joined"


def test_nobody_there_is_said_within_the_time_limit() -> None:
    port = free_port()
    for rank in (0, 1):
        said = ask(lonely, rank, port)
        assert f"process {rank} of 2 did not find the others at 127.0.0.1:{port}" in said
        assert "within 1 s" in said
