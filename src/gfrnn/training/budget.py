"""How long a run lasts, in whichever unit the user has, and the learning rate that follows from it."""

import math
from dataclasses import dataclass

from gfrnn.errors import UsageError
from gfrnn.tasks.growth import NEVER, Growth
from gfrnn.training.config import Config, Limits
from gfrnn.training.optim import schedule


@dataclass(frozen=True)
class Budget:
    """Ends at so many updates or seconds, whichever comes first (None: no such limit).

    >>> Budget(updates=100).fraction(25, seconds=9.0)
    0.25
    """

    updates: int | None = None
    seconds: float | None = None

    @classmethod
    def of(cls, run: Limits, characters: int, epoch: float, growth: Growth = NEVER) -> "Budget":
        """From the options; `characters` are read per update, `epoch` updates are one pass, before updates grow."""
        if not run.budget:
            raise UsageError("no budget: give --updates, --epochs, --chars or --minutes")
        limits = [
            run.updates,
            None if run.epochs is None else growth.updates(max(1, math.ceil(run.epochs * epoch))),
            None if run.chars is None else growth.updates(max(1, math.ceil(run.chars / characters))),
        ]
        updates = min((limit for limit in limits if limit is not None), default=None)
        return cls(updates, None if run.minutes is None else 60 * run.minutes)

    def fraction(self, step: int, seconds: float) -> float:
        """How much of it is used up after `step` updates and `seconds` of wall-clock: 1 or more is the end."""
        used = 0.0 if self.updates is None else step / self.updates
        return max(used, 0.0 if self.seconds is None else seconds / self.seconds)


class Stages:
    """The budgets of a run in turn: those it had before it was extended, each with its end, and the one it has.

    What is said here of an update is a function of the configuration, the update, and (budgets in minutes) the clock.
    """

    def __init__(self, config: Config, characters: int, epoch: float, growth: Growth = NEVER) -> None:
        self.optimizer, self.ends = config.optimizer, config.earlier
        self.budgets = [Budget.of(limits, characters, epoch, growth) for limits in (*config.earlier, config.run)]
        self.last = len(self.ends)

    def over(self, stage: int, step: int, used: float) -> bool:
        """Whether a stage ends at update `step`. An earlier one ends where it did, whatever it was that ended it."""
        return used >= 1 if stage == self.last else step >= self.ends[stage].ended

    def used_at_end(self, stage: int, budget: int) -> float:
        """How much of a budget was used up when a stage ended."""
        return self.budgets[budget].fraction(self.ends[stage].ended, self.ends[stage].seconds)

    def factor(self, stage: int, step: int, used: float) -> float:
        """What the learning rate is multiplied by at update `step`, when `used` of the stage's budget is used up.

        A stage has the schedule of a run that had its budget from the start. From where the stage before ended the rate
        comes to it in as many updates as the warm-up has.
        """
        aim = schedule(self.optimizer, step, used)
        since = step + 1 - self.ends[stage - 1].ended if stage else step
        if stage == 0 or since >= self.optimizer.warmup:
            return aim
        begin = self.factor(stage - 1, self.ends[stage - 1].ended, self.used_at_end(stage - 1, stage - 1))
        return begin + since / self.optimizer.warmup * (aim - begin)
