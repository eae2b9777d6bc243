"""The processes that train together. This is the world of a single one; every joint decision goes through it."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn


class World:
    """One process: what it has is what all have.

    Rows of the global minibatch own their text and their hidden state; a process owns a slice of the rows. Gradients
    are summed before anyone looks at them, and flags are shared once per update, so that all processes skip, halve,
    save and stop at the same update.
    """

    rank = 0
    size = 1

    def rows(self, count: int) -> slice:
        """The rows of a global minibatch of `count` that are this process's."""
        return slice(0, count)

    def total(self, *numbers: float) -> list[float]:
        """Each number summed over all processes."""
        return list(numbers)

    def most(self, *numbers: float) -> list[float]:
        """The largest of each number over all processes."""
        return list(numbers)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Make every process's gradients the sum of all."""

    def gather(self, state: tuple[Tensor, ...], count: int) -> tuple[Tensor, ...]:
        """The hidden state (L, B, H) of all rows, from each process's own."""
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
