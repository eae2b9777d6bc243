"""How well a model executes programs: any list of them (grid.py has the paper's grid of nesting x length).

Symbol accuracy is the paper's: the share of target symbols (the end mark included) that are predicted right with the
correct ones before them given. Exact match is the share of programs whose freely decoded greedy answer is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from gfrnn.models.pretrained import evaluating
from gfrnn.models.program_batch import collate
from gfrnn.models.seq2seq import Seq2Seq
from gfrnn.tasks.programs import Program
from gfrnn.tasks.programs.intervals import Share, clustered, wilson
from gfrnn.tasks.world import World

ROWS = 256
ALONE = World()


class Result(NamedTuple):
    """What one program got: its target symbols, how many were right, and their cost in nats."""

    symbols: int
    right: int
    nats: float


def symbol_accuracy(results: Sequence[Result]) -> Share:
    return clustered([r.right for r in results], [r.symbols for r in results])


def exact_match(results: Sequence[Result]) -> Share:
    return wilson(sum(r.right == r.symbols for r in results) / len(results), len(results))


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """JSON-able."""
    accuracy, exact = symbol_accuracy(results), exact_match(results)
    symbols = sum(r.symbols for r in results)
    return {
        "programs": len(results),
        "symbols": symbols,
        "symbol_accuracy": accuracy.value,
        "symbol_accuracy_interval": [accuracy.low, accuracy.high],
        "exact_match": exact.value,
        "exact_match_interval": [exact.low, exact.high],
        "nats_per_symbol": sum(r.nats for r in results) / symbols,
    }


def nothing(fraction: float) -> None:
    """What happens between minibatches by default."""


@torch.inference_mode()
def measure(
    model: Seq2Seq,
    programs: Sequence[Program],
    rows: int = ROWS,
    tick: Callable[[float], None] = nothing,
    world: World = ALONE,
) -> list[Result]:
    """A result for every program, in their order; `tick` gets the fraction done.

    The programs are read sorted by length, so that little is padded. The processes of a `world` share the programs of
    every minibatch and return the same results.
    """
    order = sorted(range(len(programs)), key=lambda i: len(programs[i].source))
    results: dict[int, Result] = {}
    with evaluating(model):
        for start in range(0, len(order), rows):
            together = order[start : start + rows]
            chosen = together[world.rows(len(together))]
            if chosen:
                batch = collate([programs[i] for i in chosen]).to(model.device)
                nats, right = model.measure(batch)
                got = map(Result, batch.target_lengths.tolist(), right.tolist(), nats.tolist())
                results.update(zip(chosen, got, strict=True))
            tick((start + len(together)) / len(programs))
    return share_results(results, len(programs), world)


def share_results(results: dict[int, Result], count: int, world: World) -> list[Result]:
    """The results of all processes, of `count` programs."""
    if world.size == 1:
        return [results[i] for i in range(count)]
    none = Result(0, 0, 0.0)
    numbers = world.total(*(number for i in range(count) for number in results.get(i, none)))
    return [Result(int(numbers[3 * i]), int(numbers[3 * i + 1]), numbers[3 * i + 2]) for i in range(count)]
