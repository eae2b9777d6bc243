"""What may be changed about learning: the gates' rate, decay of recurrent matrices, random resets, rows that grow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from campaigns import OPTIONS
from runs import outcome, run_tiny, tiny, write_text
from test_resume import stop_at
from torch import nn

from gfrnn import GFLSTM
from gfrnn.campaign.estimate import size_of
from gfrnn.campaign.plan import Budget, Planned
from gfrnn.errors import DataError, Preempted, UsageError
from gfrnn.training import optim
from gfrnn.training.config import OptimizerConfig

ALL = {
    "gate_learning_rate": 0.5,
    "weight_decay": 0.1,
    "schedule": "late",
    "reset_probability": 0.4,
    "start": "quiet",
    "gate_bias_own": 1.0,
}


@pytest.mark.parametrize("recipe", ["modern-gated-lstm", "hutter-gated-gru"])
def test_a_run_with_every_lever_resumes_bit_identically(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_tiny(tmp_path, "whole", recipe, **ALL)
    with monkeypatch.context() as patch:
        stop_at(patch, 6)
        with pytest.raises(Preempted):
            run_tiny(tmp_path, "run", recipe, **ALL)
    run_tiny(tmp_path, "run", recipe, **ALL)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


@pytest.mark.parametrize("name", list(ALL))
def test_every_lever_changes_what_is_learnt(name: str, tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    run_tiny(tmp_path, **{name: ALL[name]})
    assert outcome(tmp_path / "run")["best"] != undisturbed["best"]


@pytest.mark.parametrize("name", ["rmsprop", "adam"])
def test_gates_learn_at_their_own_rate(name: Any) -> None:
    def learnt(factor: float) -> dict[str, torch.Tensor]:
        torch.manual_seed(1)
        layer = GFLSTM(3, 4, 2, gates_see="own", dtype=torch.float64)
        before = {key: p.detach().clone() for key, p in layer.named_parameters()}
        config = OptimizerConfig(optimizer=name, gate_learning_rate=factor)
        optimizer = optim.build(config, dict(layer.named_parameters()))
        layer(torch.ones(5, 2, 3, dtype=torch.float64))[0].square().sum().backward()
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * group["factor"]
        optim.clip_and_step(optimizer, 1.0, 0.5)
        return {key: p.detach() - before[key] for key, p in layer.named_parameters()}

    usual, slow = learnt(1.0), learnt(0.25)
    for key, change in usual.items():
        factor = 0.25 if key[:-3] in ("weight_ig", "weight_hg", "bias_g") else 1.0
        assert change.any(), key
        torch.testing.assert_close(slow[key], factor * change)


def test_a_model_without_gates_has_no_rate_for_them(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="gate_learning_rate 2: the model has no global reset gates that learn"):
        run_tiny(tmp_path, wiring="feedback", gate_learning_rate=2)


def test_only_recurrent_matrices_decay_and_by_the_learning_rate(tmp_path: Path) -> None:
    layer = GFLSTM(3, 4, 2, gates_see="own")
    named: dict[str, nn.Parameter] = {f"model.{key}": p for key, p in layer.named_parameters()}
    before = {key: p.detach().clone() for key, p in named.items()}
    optim.shrink(named, 0.25)
    for key, p in named.items():
        recurrent = key.startswith(("model.weight_hh", "model.weight_fb"))
        assert torch.equal(p.detach(), before[key] * (0.75 if recurrent else 1.0))
    # With a huge decay and a tiny rate, one update leaves 1 - rate * decay of the matrix (Adam adds the rate at most).
    shared = {"updates": 1, "warmup": 0, "schedule": "constant", "learning_rate": 1e-9, "ema": 0.0}
    run_tiny(tmp_path, "run", weight_decay=2e8, **shared)
    run_tiny(tmp_path, "twin", **shared)
    after, twin = (outcome(tmp_path / name)["tensors"] for name in ("run", "twin"))
    for key in ("layer.weight_hh_l0", "layer.weight_ih_l0"):
        found, usual = (np.frombuffer(t["model.safetensors", key], dtype=np.float32) for t in (after, twin))
        np.testing.assert_allclose(found, usual * (0.8 if "hh" in key else 1.0), atol=1e-7)


def test_rows_begin_anew_by_chance_whichever_process_has_them(tmp_path: Path) -> None:
    config = tiny(tmp_path, rows=40, length=2, reset_every=0, reset_probability=0.25)
    task = config.build_task()
    state = (torch.ones(2, 40, 3), torch.full((2, 40, 3), 2.0))
    kept = []
    for step in range(50):
        h, c = task.carried(state, 7, step, slice(0, 40))
        assert torch.equal(c, 2 * h)
        assert all(row.unique().numel() == 1 for row in h.transpose(0, 1))
        parts = [slice(0, 13), slice(13, 40)]
        shares = [task.carried(tuple(s[:, rows] for s in state), 7, step, rows)[0] for rows in parts]
        assert torch.equal(torch.cat(shares, dim=1), h)
        kept.append(h[0, :, 0].numpy())
    assert np.mean(kept) == pytest.approx(0.75, abs=0.04)
    assert all(0 < row < 50 for row in np.sum(kept, axis=0))  # every row now and then
    assert not torch.equal(task.carried(state, 8, 0, slice(0, 40))[0][0, :, 0], torch.from_numpy(kept[0]))


def test_without_chance_the_state_is_carried_as_it_is(tmp_path: Path) -> None:
    task = tiny(tmp_path, reset_every=4).build_task()
    state = task.initial_state(task.build_model(1))
    assert task.carried(state, 1, 3, slice(0, 3)) is state
    assert task.carried(state, 1, 4, slice(0, 3)) is None
    assert task.carried(None, 1, 3, slice(0, 3)) is None


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("reset_probability", 1.5),
        ("reset_probability", -0.1),
        ("weight_decay", -1.0),
        ("gate_learning_rate", 0.0),
        ("decay_share", 0.0),
        ("decay_share", 1.1),
    ],
)
def test_levers_that_make_no_sense_are_refused(option: str, value: float, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"{option} (must|is too large)"):
        tiny(tmp_path, **{option: value})


def test_rows_that_grow_read_on_where_they_were(tmp_path: Path) -> None:
    usual = tiny(tmp_path).build_task()
    task = tiny(tmp_path, grow_after=4, grow_length=3).build_task()
    for step in range(4):
        assert torch.equal(task.batch(1, step, slice(0, 3)), usual.batch(1, step, slice(0, 3)))
    text = torch.cat([usual.batch(1, step, slice(0, 3))[:-1] for step in range(10)])
    grown = torch.cat([task.batch(1, step, slice(0, 3))[:-1] for step in range(6)])
    assert torch.equal(grown, text)
    assert torch.equal(task.batch(1, 4, slice(1, 3)), task.batch(1, 4, slice(0, 3))[:, 1:])


def test_a_run_that_grows_reads_its_budget_and_resumes_bit_identically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 12 portions of 21 characters: 5 updates of one, and 4 of two, of which the last needs but one.
    options = {"grow_after": 5, "grow_length": 2, "updates": None, "chars": 252}
    result = run_tiny(tmp_path, "whole", **options)
    assert (result["updates"], result["characters"]) == (9, (5 + 2 * 4) * 21)
    for step in (2, 5):  # saved after it, before and after the rows grow
        with monkeypatch.context() as patch:
            stop_at(patch, step)
            with pytest.raises(Preempted):
                run_tiny(tmp_path, f"run-{step}", **options)
        run_tiny(tmp_path, f"run-{step}", **options)
        assert outcome(tmp_path / f"run-{step}") == outcome(tmp_path / "whole")


def test_a_text_too_short_for_grown_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="fewer than one minibatch of 3 rows x 7000"):
        tiny(tmp_path, grow_after=5, grow_length=1000).build_task()
    with pytest.raises(UsageError, match="grow_length must be at least 1"):
        tiny(tmp_path, grow_length=0)


def test_what_grows_is_longer_to_read_for_the_table(tmp_path: Path) -> None:
    limits = tuple((key, value) for key, value in OPTIONS.items())
    data = (("data", write_text(tmp_path)), ("grow_after", 5))
    planned = Planned("modern-gated-lstm", 1, Budget(chars=252), (*limits, *data))
    size = size_of(planned)
    assert (size.updates, size.characters) == (9, 13 * 21)
