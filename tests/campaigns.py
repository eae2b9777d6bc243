"""Small campaigns for the tests: tiny models on a short real text, and a child that only pretends to train them."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

Trained = tuple[list[Any], Path]  # planned runs, and the folder that holds them finished
PRETENDER = Path(__file__)
# No import of torch here: this file is also the program that pretends, which must start at once.
OPTIONS: dict[str, Any] = {
    "hidden_size": 6,
    "num_layers": 2,
    "rows": 3,
    "length": 7,
    "validate_every": 5,
    "checkpoint_every": 3,
    "log_every": 2,
    "validate_chars": 0,
}
BUDGET = 12 * 3 * 7  # characters: 12 updates


def tiny_plan(folder: Path, whats: list[str], seeds: tuple[int, ...] = (1,), **options: Any) -> list[Any]:
    from runs import write_text

    from gfrnn.campaign.plan import Budget, plan

    options = {"data": write_text(folder), **OPTIONS, **options}
    return plan(whats, "modern", seeds, Budget(chars=BUDGET), options)


def make_finished(folder: Path, planned: Any) -> Path:
    """Train and evaluate a planned run, here and now."""
    from gfrnn.cli.evaluate import evaluate
    from gfrnn.training.run import train

    run = folder / planned.name
    train(planned.config, run)
    evaluate(str(run), "test", None, None, quiet=True)
    return run


def names(plans: list[Any]) -> list[str]:
    return [planned.name for planned in plans]


def notes(folder: Path, verb: str) -> list[str]:
    """What pretenders trained (or evaluated) beside this folder, in which order."""
    path = folder / f"{verb}.txt"
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


def pretend(words: list[str], runs: Path) -> int:
    """`gfrnn WORDS`, if training is copying a run that is in the folder `runs`.

    Files named after the run steer it: NAME.fails (its text is said), NAME.waits (until it is gone, or SIGTERM), and
    NAME.rests (the same for the evaluation).
    """
    target = Path(words[words.index("--out") + 1] if words[0] == "train" else words[1])
    source, steering = runs / target.name, target.parent.parent
    note = steering / f"{words[0]}.txt"
    held = (target / "lock").open("ab+")
    if words[0] == "train":
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"gfrnn: {target} is in use by another process (pid 1)", file=sys.stderr)
            return 2
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    with note.open("a") as file:
        file.write(f"{target.name} {os.environ['OMP_NUM_THREADS']}\n")
    failure = steering / f"{target.name}.fails"
    if failure.exists() and words[0] == "train":
        print("a warning before", failure.read_text(), sep="\n", file=sys.stderr)
        return 3
    while (steering / f"{target.name}.{'waits' if words[0] == 'train' else 'rests'}").exists():
        if stopped:
            time.sleep(0.2)
            (target / "metrics.jsonl").write_text("")
            (steering / f"{target.name}.saved").touch()
            return 75
        time.sleep(0.01)
    evaluation = "blocks-test.safetensors"
    if words[0] == "eval":
        shutil.copy(source / evaluation, target)
    else:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(evaluation, "lock"), dirs_exist_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(pretend(sys.argv[2:], Path(sys.argv[1])))
