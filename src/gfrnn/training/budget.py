"""How long a run lasts, in whichever unit the user has."""

import math
from dataclasses import dataclass

from gfrnn.config import RunConfig
from gfrnn.errors import UsageError


@dataclass(frozen=True)
class Budget:
    """Ends at so many updates or seconds, whichever comes first (None: no such limit).

    >>> Budget(updates=100).fraction(25, seconds=9.0)
    0.25
    """

    updates: int | None = None
    seconds: float | None = None

    @classmethod
    def of(cls, run: RunConfig, characters: int, epoch: float) -> "Budget":
        """From the options; `characters` are read per update, `epoch` updates are one pass."""
        if not run.budget:
            raise UsageError("no budget: give --updates, --epochs, --chars or --minutes")
        limits = [
            run.updates,
            None if run.epochs is None else max(1, math.ceil(run.epochs * epoch)),
            None if run.chars is None else max(1, math.ceil(run.chars / characters)),
        ]
        updates = min((limit for limit in limits if limit is not None), default=None)
        return cls(updates, None if run.minutes is None else 60 * run.minutes)

    def fraction(self, step: int, seconds: float) -> float:
        """How much of it is used up after `step` updates and `seconds` of wall-clock: 1 or more is the end."""
        used = 0.0 if self.updates is None else step / self.updates
        return max(used, 0.0 if self.seconds is None else seconds / self.seconds)
