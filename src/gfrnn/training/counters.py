"""The numbers that a trainer carries from update to update."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Counters:
    """What train.json holds besides the step."""

    characters: int = 0
    seconds: float = 0.0
    halvings: int = 0  # of the learning rate
    skipped: int = 0  # updates not made, because the gradient exploded or was not finite
    bad_in_a_row: int = 0  # not finite
    validations: int = 0
    validated_step: int = -1
    best_step: int | None = None
    best: float | None = None
    stale: int = 0  # validations since the best
    done: bool = False  # with the budget of the stage
    stage: int = 0  # how many times the run had been extended
    # of the updates since the last training record in metrics.jsonl
    nats: float = 0.0
    symbols: float = 0.0
    norm: float = 0.0
    identity: dict[str, Any] = field(default_factory=dict)
    explosions: dict[str, Any] = field(default_factory=dict)
