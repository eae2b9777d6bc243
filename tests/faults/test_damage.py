"""Flipped bits and truncations: every one is seen and named, none is loaded."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from runs import files, outcome, run_tiny

from gfrnn.errors import DataError
from gfrnn.models import CharLM
from gfrnn.training.checkpoint import Checkpoints

Survived = Callable[[int, int, str], None]


def damaged(content: bytes, chance: random.Random, truncate: bool) -> bytes:
    if truncate:
        return content[: chance.randrange(len(content))]
    at = chance.randrange(8 * len(content))
    return content[: at // 8] + bytes([content[at // 8] ^ 1 << at % 8]) + content[at // 8 + 1 :]


def refused(load: Callable[[], object], name: str) -> bool:
    """Whether loading is refused by a sentence with the damaged file's name (or, for a manifest, its folder's)."""
    with pytest.raises(DataError) as raised:
        load()
    return name in str(raised.value)


@pytest.mark.parametrize(("flips", "truncations"), [(1000, 50), pytest.param(20_000, 1000, marks=pytest.mark.soak)])
def test_every_flipped_bit_and_every_truncation_is_seen(
    flips: int, truncations: int, tmp_path: Path, survived: Survived
) -> None:
    run_tiny(tmp_path, updates=3)
    run = tmp_path / "run"
    checkpoints, step = Checkpoints(run), run / "checkpoints/step-3"
    chance, seen = random.Random(flips), 0
    for folder, load in ((step, lambda: checkpoints.load(3)), (run / "best", lambda: CharLM.from_pretrained(run))):
        load()
        good = files(folder)
        for number in range((flips + truncations) // 2):
            name = chance.choice(sorted(good))
            (folder / name).write_bytes(damaged(good[name], chance, number < truncations // 2))
            seen += refused(load, folder.name if name == "manifest.json" else name)
            (folder / name).write_bytes(good[name])
        load()
    survived(seen, flips + truncations, f"damages of a checkpoint and a model ({flips:,} bits, {truncations:,} cuts)")


def test_a_run_goes_on_from_the_checkpoint_before_the_damaged_one(tmp_path: Path, survived: Survived) -> None:
    options = {"updates": 6, "checkpoint_every": 2, "validate_every": 6}
    run_tiny(tmp_path, "whole", **options)
    whole = outcome(tmp_path / "whole")
    names = ("model.safetensors", "config.json", "train.safetensors", "train.json", "manifest.json")
    for number, name in enumerate(names):
        run_tiny(tmp_path, name, **options)
        path = tmp_path / name / "checkpoints/step-6" / name
        path.write_bytes(damaged(path.read_bytes(), random.Random(number), truncate=False))
        run_tiny(tmp_path, name, **options)
        assert outcome(tmp_path / name) == whole
    survived(len(names), len(names), "damaged checkpoints stepped over, all with equal bits")
