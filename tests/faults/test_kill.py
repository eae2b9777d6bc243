"""kill -9 at random moments, saves included: the run ends with the bits of one that was left alone."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import child, exit_code, last_commit, train_and_tell, whole_checkpoint
from runs import outcome

from gfrnn.training.runlog import read_metrics

OPTIONS: dict[str, Any] = {"updates": 60, "validate_every": 15, "checkpoint_every": 4}
STARTING = 0.1  # seconds, about, until a child trains


def wait_for(seen: Callable[[], bool], process: Any) -> None:
    while process.exitcode is None and not seen():
        time.sleep(0.0005)


def half_written(run: Path) -> set[tuple[Path, int]]:
    """What a save has begun and not ended, each with the time of its last change."""
    seen = set()
    for path in (*run.glob("checkpoints/*.tmp"), *run.glob("best.*")):
        with contextlib.suppress(FileNotFoundError):  # renamed or removed since it was listed
            seen.add((path, path.stat().st_ctime_ns))
    return seen


@pytest.mark.parametrize(
    ("recipe", "kills"),
    [
        ("modern-gated-lstm", 20),
        pytest.param("modern-gated-lstm", 120, marks=pytest.mark.soak),
        pytest.param("hutter-stacked-gru", 40, marks=pytest.mark.soak),
        pytest.param("hutter-gated-tanh", 40, marks=pytest.mark.soak),
    ],
)
def test_kill_9_at_random_moments(
    recipe: str, kills: int, tmp_path: Path, survived: Callable[[int, int, str], None]
) -> None:
    assert exit_code(train_and_tell, tmp_path, "whole", recipe, OPTIONS) == 0
    whole = outcome(tmp_path / "whole")
    seconds = max(record.get("seconds", 0) for record in read_metrics(tmp_path / "whole"))
    chance = random.Random(kills)
    done, in_saves, lives = 0, 0, 0
    more = True
    while more or lives == 0:
        name = f"life{lives}"
        run = tmp_path / name
        left = half_written(run)  # by the kill before: such a file says nothing of this one
        with child(train_and_tell, tmp_path, name, recipe, OPTIONS) as process:
            if more:
                time.sleep(chance.uniform(0, STARTING + seconds / 8))
                if done % 2:
                    wait_for(lambda run=run, left=left: bool(half_written(run) - left), process)
                    time.sleep(chance.choice((0, chance.uniform(0, 0.03))))
                process.kill()
            process.join()
            died = process.exitcode == -9
            assert died or process.exitcode == 0
        committed = last_commit(tmp_path, name)
        if died:
            done, in_saves = done + 1, in_saves + bool(half_written(run) - left)
            assert whole_checkpoint(run) >= committed
        else:
            assert outcome(run) == whole
            lives += 1
        more = done < kills or (in_saves < kills // 10 and done < 3 * kills)  # where chance is against it: some more
    assert in_saves >= kills // 10
    what = f"kills -9 of {recipe}, {in_saves} of them in a save, in {lives} runs, all with equal bits"
    survived(done, max(done, kills), what)
