"""Bits per character of a whole text, read as many parallel streams."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gfrnn.models.char_lm import CharLM
from gfrnn.models.pretrained import evaluating
from gfrnn.tasks.world import World

WARMUP = 1000  # characters each stream reads before those it is scored on
MAX_STREAMS = 128
CHUNK = 100
BLOCK = 1000  # characters whose cost is kept, so that models can be compared block by block later
ALONE = World()


@dataclass(frozen=True)
class Score:
    """The cost of a text."""

    bits: float
    characters: int
    blocks: np.ndarray  # bits of every BLOCK characters, the last block may be shorter: float64

    @property
    def bpc(self) -> float:
        return self.bits / self.characters

    @property
    def nats(self) -> float:
        return self.bpc * math.log(2)


def nothing(fraction_done: float) -> None:
    """What happens between chunks by default."""


@torch.no_grad()
def score_text(
    model: CharLM,
    ids: np.ndarray,
    streams: int | None = None,
    warmup: int = WARMUP,
    tick: Callable[[float], None] = nothing,
    world: World = ALONE,
) -> Score:
    """The cost of every symbol in `ids` given all before it, from the zero state.

    The text is cut into `streams` equal parts that are read side by side, each after the `warmup` characters before it;
    a network forgets its start within so many, and the sum is that of one stream. `tick` is told the fraction done.
    The processes of a `world` share the streams and return the same score.
    """
    count = len(ids)
    if count < 2:
        raise ValueError(f"a text of {count} symbols cannot be scored: it needs two or more")
    pairs = count - 1  # pair k: symbol k predicts symbol k + 1
    if streams is None:
        streams = max(1, min(MAX_STREAMS, pairs // (4 * warmup) if warmup else MAX_STREAMS))
    part = -(-pairs // streams)
    own = world.rows(streams)
    starts = (np.arange(streams) * part)[own]
    begins = own.start == 0 < own.stop  # whether the text's first symbol is among them
    blocks, state = np.zeros(-(-count // BLOCK)), None  # nats
    blocks[0] = float(model.first_nats()[int(ids[0])]) if begins else 0.0
    with evaluating(model):
        for low, high in chunks(-warmup if streams > 1 else 0, part):
            if low == 0 and state is not None and begins:
                state = zero_first_row(state)  # the first part has nothing before it
            if len(starts):
                index = starts[None, :] + np.arange(low, high + 1)[:, None]
                window = torch.from_numpy(ids[index.clip(0, count - 1)].astype(np.int64)).to(model.device)
                cost, state = model.nats(window[:-1], window[1:], state)
                if low >= 0:
                    scored = index[:-1] < np.minimum(starts + part, pairs)
                    block = (index[:-1][scored] + 1) // BLOCK
                    blocks += np.bincount(block, cost.cpu().double().numpy()[scored], minlength=len(blocks))
            tick((high + warmup) / (part + warmup))
    bits = np.array(world.total(*blocks.tolist())) / math.log(2)
    return Score(math.fsum(bits), count, bits)


def chunks(first: int, end: int) -> list[tuple[int, int]]:
    """CHUNK steps at a time from `first` to `end`, with an edge at 0.

    >>> chunks(-150, 120)
    [(-150, -50), (-50, 0), (0, 100), (100, 120)]
    """
    edges = sorted({*range(first, 0, CHUNK), *range(0, end, CHUNK), end})
    return list(itertools.pairwise(edges))


def zero_first_row(state: Any) -> Any:
    """The state (L, B, H), or pair of them, with row 0 of the batch forgotten."""
    if isinstance(state, tuple):
        return tuple(zero_first_row(part) for part in state)
    state = state.clone()
    state[:, 0] = 0
    return state
