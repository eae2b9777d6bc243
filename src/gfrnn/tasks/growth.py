"""Rows that get longer at an update: how many updates a budget is then, and how much so many have read. No torch."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Growth:
    """From update `after` on an update reads `factor` times as much as before; without `after` it never does.

    Amounts are in portions: what one update reads before it grows.

    >>> growth = Growth(after=10, factor=2)
    >>> growth.at(9), growth.at(10), growth.portions(12), growth.updates(15)
    (1, 2, 14, 13)
    """

    after: int = 0
    factor: int = 1

    def at(self, step: int) -> int:
        """Portions that update `step` reads."""
        return self.factor if 0 < self.after <= step else 1

    def portions(self, step: int) -> int:
        """Portions that were read before update `step`."""
        return step + max(0, step - self.after) * (self.at(step) - 1)

    def updates(self, portions: int) -> int:
        """Updates that read so many portions, at least."""
        if not 0 < self.after < portions:
            return portions
        return self.after + math.ceil((portions - self.after) / self.factor)


NEVER = Growth()
