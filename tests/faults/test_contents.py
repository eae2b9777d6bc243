"""Checkpoints and models that are whole but hold other tensors or numbers than they must: refused before use."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import ask, command
from runs import outcome, run_tiny
from test_malicious import limited, vouch
from torch import Tensor

from gfrnn.models import CharLM
from gfrnn.storage.tensorfile import pack_json, pack_tensors, unpack_tensors
from gfrnn.training.contents import wrong_generator

Survived = Callable[[int, int, str], None]
RECIPES = ("modern-gated-lstm", "hutter-gated-gru")  # Adam and RMSProp; two tensors of state and one
GONE = torch.zeros(0)


@pytest.fixture(scope="module", params=RECIPES)
def good(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    run_tiny(folder, "run", request.param, updates=3, checkpoint_every=3, keep=1)
    return folder / "run"


def resume(run: Path) -> list[Any]:
    recipe = next(r for r in RECIPES if r in (run / "config.yaml").read_text())
    return ["train", recipe, "--out", run, "--quiet"]


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "one number": lambda t: t.flatten()[:1].clone(),
    "no number": lambda t: t.flatten()[:0].clone(),
    "a row less": lambda t: t[:-1] if t.ndim else t[None],
    "a row more": lambda t: torch.cat([t, t[:1]]) if t.ndim else torch.stack([t, t]),
    "one axis": lambda t: t[None],
    "float64": lambda t: t.double(),
    "float16": lambda t: t.half(),
    "int64": lambda t: t.long(),
    "bytes": lambda t: t.to(torch.uint8) if t.dtype != torch.uint8 else t.to(torch.int8),
    "nothing": lambda t: GONE,
}


def put(run: Path, file: str, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    """Change the tensors of the only checkpoint; its manifest vouches for them."""
    folder = run / "checkpoints/step-3"
    tensors = change(unpack_tensors((folder / f"{file}.safetensors").read_bytes(), file))
    vouch(folder, **{f"{file}__safetensors": pack_tensors(tensors)})


def refusal(run: Path, cache: Path, file: str) -> str:
    code, error, _, executed = ask(limited, cache, *resume(run))
    assert (code, error.count("\n"), executed) == (3, 1, []), error
    assert f"checkpoints/step-3/{file} is whole but not this run's: " in error
    return error


def copies(good: Path, tmp_path: Path) -> Callable[[], Path]:
    def fresh() -> Path:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        shutil.copytree(good, tmp_path / "run")
        counters = json.loads((tmp_path / "run/checkpoints/step-3/train.json").read_bytes())
        vouch(tmp_path / "run/checkpoints/step-3", train__json=pack_json({**counters, "done": False}))
        config = (tmp_path / "run/config.yaml").read_text()
        (tmp_path / "run/config.yaml").write_text(config.replace("updates: 3", "updates: 5"))
        return tmp_path / "run"

    return fresh


def some_of_each(names: list[str]) -> list[str]:
    """The first and the last name of every kind of tensor."""
    kinds: dict[str, list[str]] = {}
    for name in names:
        start, _, end = name.partition(".")
        kinds.setdefault(f"{start} {end.rpartition('.')[2] if start == 'optimizer' else ''}", []).append(name)
    return [name for kind in kinds.values() for name in {kind[0]: 0, kind[-1]: 0}]


@pytest.mark.parametrize("every", [len(CHANGES), pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("file", ["train", "model"])
def test_tensors_of_other_shapes_dtypes_and_names(
    file: str, every: int, good: Path, tmp_path: Path, survived: Survived
) -> None:
    """One change of each tensor, another one for each (the soak: all changes)."""
    fresh, count = copies(good, tmp_path), 0
    names = list(unpack_tensors((good / f"checkpoints/step-3/{file}.safetensors").read_bytes(), file))
    for number, name in enumerate(some_of_each(names)):
        for kind in list(CHANGES)[number % every :: every]:
            if kind == "nothing" and name == "state.0" and "state.1" not in names:
                continue  # a run without any state is one that has just forgotten it

            def change(tensors: dict[str, Tensor], name: str = name, kind: str = kind) -> dict[str, Tensor]:
                changed = CHANGES[kind](tensors.pop(name))
                return tensors if changed is GONE else {**tensors, name: changed.contiguous()}

            if (name, kind) == ("state.0", "nothing") and "state.1" not in names:
                continue  # none at all is right after a reset
            run = fresh()
            put(run, file, change)
            assert name in refusal(run, tmp_path / "cache", f"{file}.safetensors"), kind
            count += 1
    survived(count, count, f"checkpoints with a wrong tensor in {file}.safetensors")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("stranger", "stranger is unexpected"),
        ("state.7", "state.7 is unexpected"),
        ("average.stranger", "average.stranger is unexpected"),
        ("optimizer.layer.weight_ih_l0.max_exp_avg_sq", "max_exp_avg_sq is unexpected"),
        ("optimizer.stranger.exp_avg", "optimizer.stranger.exp_avg is unexpected"),
    ],
)
def test_a_tensor_too_many(name: str, why: str, good: Path, tmp_path: Path) -> None:
    run = copies(good, tmp_path)()
    put(run, "train", lambda tensors: {**tensors, name: torch.zeros(3)})
    assert why in refusal(run, tmp_path / "cache", "train.safetensors")


def test_numbers_that_are_not_finite(good: Path, tmp_path: Path) -> None:
    for file, name in (("model", "head.bias"), ("train", "average.head.bias")):
        run = copies(good, tmp_path)()
        put(run, file, lambda tensors, name=name: {**tensors, name: tensors[name] * torch.nan})
        assert f"{name} is not finite" in refusal(run, tmp_path / "cache", f"{file}.safetensors")


def generator_with(state: Tensor, left: int, next_one: int) -> Tensor:
    state = state.clone()
    state[8:12] = torch.tensor([left], dtype=torch.int32).view(torch.uint8)
    state[16:24] = torch.tensor([next_one], dtype=torch.int64).view(torch.uint8)
    return state


def test_a_generator_that_would_read_beyond_its_numbers(good: Path, tmp_path: Path) -> None:
    run = copies(good, tmp_path)()
    put(run, "train", lambda tensors: {**tensors, "rng": generator_with(tensors["rng"], 624, 624)})
    assert "rng is no state of a random generator" in refusal(run, tmp_path / "cache", "train.safetensors")
    for left, next_one in ((624, 2), (2, 624), (0, 0), (625, 0), (-1, 3), (1, -1), (1, 1 << 40)):
        assert wrong_generator(generator_with(torch.get_rng_state(), left, next_one))


def test_every_true_state_of_the_generator_passes() -> None:
    generator = torch.Generator().manual_seed(1)
    for draws in (0, 1, 1, 100, 521, 1, 1, 1, 700, 3000):
        torch.randint(1000, (draws,), generator=generator)
        assert wrong_generator(generator.get_state()) == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("halvings", "many"),
        ("halvings", -(10**6)),
        pytest.param("halvings", 10**400, id="halvings-enormous"),
        ("characters", 1.5),
        ("seconds", float("nan")),
        ("best", float("inf")),
        ("best_step", [1]),
        ("done", 0),
        ("stranger", 1),
        ("explosions", []),
        ("explosions", {"norms": ["x"], "last": None}),
        ("explosions", {"norms": [], "last": "x"}),
    ],
)
def test_counters_of_other_kinds(name: str, value: Any, good: Path, tmp_path: Path) -> None:
    run = copies(good, tmp_path)()
    counters = json.loads((run / "checkpoints/step-3/train.json").read_bytes())
    vouch(run / "checkpoints/step-3", train__json=pack_json({**counters, name: value}))
    assert name in refusal(run, tmp_path / "cache", "train.json")


def test_a_checkpoint_that_is_as_it_must_be_goes_on(good: Path, tmp_path: Path) -> None:
    run = copies(good, tmp_path)()
    code, _, error = command(*resume(run))
    assert (code, error) == (0, "")
    assert "step-5" in outcome(run)["steps"]


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.complex64])
def test_model_tensors_that_are_no_real_numbers(dtype: torch.dtype, tmp_path: Path) -> None:
    CharLM(hidden_size=3, num_layers=1).save_pretrained(tmp_path / "model")
    tensors = unpack_tensors((tmp_path / "model/model.safetensors").read_bytes(), "model")
    tensors["head.bias"] = tensors["head.bias"].to(dtype)
    vouch(tmp_path / "model", model__safetensors=pack_tensors(tensors))
    code, error, _, _ = ask(limited, tmp_path / "cache", "generate", tmp_path / "model")
    assert (code, error.count("\n")) == (3, 1), error
    assert f"head.bias is {str(dtype).removeprefix('torch.')} instead of float32" in error
