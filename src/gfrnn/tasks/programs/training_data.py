"""The programs of every update: a pure function of (configuration, seed, update).

An epoch is a permutation of the training programs. Minibatches of similar length waste little on padding, so `pool`
consecutive minibatches' worth of programs are sorted by length, cut into minibatches, and these are taken in random
order. Every program is still read once an epoch, and a minibatch's loss is the mean over its programs, each counted
alike whatever its company: the expected gradient of an update is that of unsorted minibatches.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from gfrnn.tasks.programs.config import ProgramsConfig
from gfrnn.tasks.programs.generator import Program, make
from gfrnn.tasks.programs.settings import ORDERED


class TrainingPrograms:
    """`batch(update)` is the list of programs of an update."""

    def __init__(self, config: ProgramsConfig, seed: int) -> None:
        self.config, self.seed, self.settings = config, seed, config.settings()
        # A curriculum is an order: what gets harder with its index is read by index and never again.
        self.ordered = config.curriculum in ORDERED
        self._pool = lru_cache(maxsize=2)(self._make_pool)
        self._usual_symbols = lru_cache(maxsize=2)(self._average_symbols)
        self._permutation = lru_cache(maxsize=2)(self._make_permutation)

    def batch(self, update: int) -> list[Program]:
        pool, place = divmod(update, self.config.pool)
        return self._pool(pool)[place]

    def usual_symbols(self, update: int) -> float:
        """Target symbols of a program on average, at this place in the curriculum: over the pool of the update."""
        return self._usual_symbols(update // self.config.pool)

    def _average_symbols(self, pool: int) -> float:
        sizes = [len(program.target) + 1 for minibatch in self._pool(pool) for program in minibatch]
        return sum(sizes) / len(sizes)

    def index(self, position: int) -> int:
        """Which training program is the `position`-th to be read, epoch after epoch."""
        if self.ordered:
            return position
        epoch, offset = divmod(position, self.config.programs)
        return int(self._permutation(epoch)[offset])

    def sample(self, most: int) -> range:
        """Indices of programs that stand for all: any will do, unless they get harder with their index."""
        count = self.config.programs
        return range(0, count, max(1, count // most)) if self.ordered else range(min(most, count))

    def _make_permutation(self, epoch: int) -> np.ndarray:
        return np.random.default_rng([self.seed, 0, epoch]).permutation(self.config.programs)

    def _make_pool(self, pool: int) -> list[list[Program]]:
        rows, count = self.config.rows, self.config.pool
        first = pool * count * rows
        programs = [self.program(self.index(first + i)) for i in range(count * rows)]
        if count > 1:
            # Sorting is stable and the programs come in random order: equal lengths fall in any minibatch.
            programs.sort(key=lambda program: len(program.source))
        order = np.random.default_rng([self.seed, 1, pool]).permutation(count)
        return [programs[place * rows : (place + 1) * rows] for place in order]

    def program(self, index: int) -> Program:
        return make(self.config.data_seed, index, self.settings, "train")
