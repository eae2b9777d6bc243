"""The processes that train together. This is the world of a single one; every joint decision goes through it."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from torch import Tensor, nn

T = TypeVar("T")


class World:
    """One process: what it has is what all have (distributed.py has the world of several).

    Rows of the global minibatch own their text and their hidden state; a process owns a slice of the rows. Gradients
    are summed before anyone looks at them, and flags are shared once per update, so that all processes skip, halve,
    save and stop at the same update. The first process, of rank 0, alone reads and writes the run folder and speaks.

    >>> with World() as world:
    ...     world.rows(100), world.total(2, 3.5)
    (slice(0, 100, None), [2, 3.5])
    """

    rank = 0
    size = 1

    def __enter__(self) -> "World":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Leave together, with one and the same error if there was one."""

    @property
    def first(self) -> bool:
        return self.rank == 0

    def rows(self, count: int) -> slice:
        """The rows of a global minibatch of `count` that are this process's: as equal shares as there are."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def seed(self, seed: int, step: int) -> int:
        """Of the dropout in update `step`: every process has its own. torch's generator on the CPU takes 32 bits."""
        return int(np.random.SeedSequence(seed, spawn_key=(step, self.rank)).generate_state(1)[0])

    def alike(self, facts: dict[str, Any], what: str) -> None:
        """Refuse to go on unless `facts`, JSON-able, are the same in all processes."""

    def from_first(self, make: Callable[[], T], pack: Callable[[T], bytes], unpack: Callable[[bytes], T]) -> T:
        """What `make` returns in the first process, where alone it is called."""
        return make()

    def spread(self, model: nn.Module) -> None:
        """Give every process the first one's weights."""

    def watch(self, model: nn.Module) -> None:
        """Start from the same weights, and send gradients from now on as soon as a backward pass has made them."""

    def total(self, *numbers: float) -> list[float]:
        """Each number summed over all processes, to the same bits in all."""
        return list(numbers)

    def most(self, *numbers: float) -> list[float]:
        """The largest of each number over all processes."""
        return list(numbers)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Make every process's gradients the sum of all."""

    def gather(self, state: tuple[Tensor, ...], count: int) -> tuple[Tensor, ...]:
        """The hidden state (L, B, H) of all `count` rows, from each process's own."""
        return state

    def own(self, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """This process's rows of the hidden state of all rows."""
        rows = self.rows(state[0].shape[1]) if state else slice(0)
        return tuple(part[:, rows] for part in state)


def flatten(state: Any) -> tuple[Tensor, ...]:
    """A layer's state as a tuple of tensors (L, B, H): none, one, or two."""
    if state is None:
        return ()
    return tuple(state) if isinstance(state, tuple) else (state,)


def unflatten(parts: tuple[Tensor, ...]) -> Any:
    """A layer's state from the tuple."""
    if len(parts) == 2:
        return parts
    return parts[0] if parts else None
