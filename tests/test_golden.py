"""What training comes to does not change when code is moved: the losses of golden.json, to 1e-5."""

from __future__ import annotations

import json
from pathlib import Path

import golden
import pytest

RELATIVE = 1e-5
KEPT = json.loads(golden.FILE.read_text())


def test_every_run_has_its_losses() -> None:
    assert set(KEPT) == set(golden.runs())
    assert all(len(losses) == golden.UPDATES + 1 for losses in KEPT.values())


@pytest.mark.parametrize("name", golden.runs())
def test_training_comes_to_the_golden_losses(name: str, tmp_path: Path) -> None:
    recipe, options = golden.runs()[name]
    assert golden.losses(recipe, options, tmp_path) == pytest.approx(KEPT[name], rel=RELATIVE)
