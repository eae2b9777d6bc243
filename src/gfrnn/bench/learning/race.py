"""Equal parameters, equal minutes, one text: every contender looks for its learning rate, learns, and is scored.

Only time spent on updates counts; validating is free. On one thread it is the processor's time, so that other work on
the machine does not shorten anybody's minutes. What is done is kept, so that the same command goes on with the next
contender.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gfrnn.bench.learning.contenders import Contender
from gfrnn.models.precision import precisely

WARMUP_UPDATES, CLIP, BETAS = 100, 1.0, (0.9, 0.99)
BEYOND = 3  # rates tried past the ends of the list, at most
STREAMS, WARM, CHUNK = 64, 1000, 100  # in scoring: texts side by side, characters read before each, steps at a time


@dataclass(frozen=True)
class Race:
    """The same for every contender."""

    minutes: float = 30.0
    search_minutes: float = 3.0  # for each learning rate tried
    rates: tuple[float, ...] = (1e-3, 3e-3, 9e-3, 2.7e-2)
    points: int = 10  # of the learning curve
    curve_characters: int = 100_000  # of the validation split: for the curve, and to choose the learning rate
    final_characters: int = 1_000_000  # at the end
    seed: int = 1


def batches(text: np.ndarray, rows: int, length: int, seed: int) -> Iterator[Tensor]:
    """Symbols (length + 1, rows): every row reads on where it stopped, from a start of its own."""
    starts = int(np.random.default_rng(seed).integers(len(text))) + np.arange(rows) * (len(text) // rows)
    offsets, step = np.arange(length + 1)[:, None], 0
    while True:
        yield torch.from_numpy(text[(starts + step * length + offsets) % len(text)].astype(np.int64))
        step += 1


@torch.no_grad()
def bits_per_character(model: nn.Module, contender: Contender, ids: np.ndarray) -> float:
    """Of every symbol of `ids` but the first, each once.

    With carried state: STREAMS parts side by side, each after the WARM characters before it. With a context: windows
    that overlap by half, of which the second half is scored (of the very first window, all).
    """
    was_training = model.training
    model.eval()
    bits = windowed(model, contender.context, ids) if contender.context else carried(model, ids)
    model.train(was_training)
    return bits / math.log(2) / (len(ids) - 1)


def carried(model: nn.Module, ids: np.ndarray) -> float:
    """Nats of all symbols but the first, by a model that carries its state."""
    pairs = len(ids) - 1
    streams = max(1, min(STREAMS, pairs // (4 * WARM)))
    part = -(-pairs // streams)
    starts, total, state = np.arange(streams) * part, 0.0, None
    first = -WARM if streams > 1 else 0
    for low in range(first, part, CHUNK):
        steps = np.arange(low, min(low + CHUNK, part) + 1)[:, None]
        index = starts + steps
        window = torch.from_numpy(ids[index.clip(0, pairs)].astype(np.int64))
        nats, state = model.nats(window[:-1], window[1:], state)  # type: ignore[operator]
        counts = (steps[:-1] >= 0) & (index[:-1] < np.minimum(starts + part, pairs))
        total += float(nats.double().numpy()[counts].sum())
    return total


def windowed(model: nn.Module, context: int, ids: np.ndarray) -> float:
    """Nats of all symbols but the first, by a model that sees a window."""
    pairs, half = len(ids) - 1, context // 2
    starts, total = np.arange(0, max(1, pairs - half), half), 0.0
    for group in np.split(starts, range(STREAMS, len(starts), STREAMS)):
        index = group + np.arange(context + 1)[:, None]
        window = torch.from_numpy(ids[index.clip(0, pairs)].astype(np.int64))
        nats, _ = model.nats(window[:-1], window[1:])  # type: ignore[operator]
        fresh = (np.arange(context)[:, None] >= half) | (group == 0)
        total += float(nats.double().numpy()[fresh & (index[:-1] < pairs)].sum())
    return total


def learn(
    contender: Contender,
    texts: tuple[np.ndarray, np.ndarray],
    race: Race,
    rate: float,
    minutes: float,
    points: int,
    tick: Callable[[float], None],
) -> dict[str, Any]:
    """Train on texts[0] for so many minutes of updates, the rate falling to 0; score the beginning of texts[1]."""
    torch.manual_seed(race.seed)
    model = contender.build()
    optimizer = torch.optim.Adam(model.parameters(), rate, BETAS, fused=True)
    spent, updates, state, reached = 0.0, 0, None, 0
    curve: list[dict[str, float]] = []
    each = contender.rows * contender.length
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    for window in batches(texts[0], contender.rows, contender.length, race.seed):
        started = clock()
        used = used_up(spent, minutes)
        optimizer.param_groups[0]["lr"] = rate * (1 - used) * min(1.0, (updates + 1) / WARMUP_UPDATES)
        with precisely(contender.precision, model):
            nats, state = model.nats(window[:-1], window[1:], state)  # type: ignore[operator]
        optimizer.zero_grad()
        nats.mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        state = detached(state)
        updates += 1
        spent += clock() - started
        over = spent >= 60 * minutes
        part = points if over else int(points * used_up(spent, minutes))
        if part > reached:
            reached = part
            bpc = bits_per_character(model, contender, texts[1][: race.curve_characters])
            curve.append({"point": reached, "minutes": spent / 60, "characters": updates * each, "bpc": bpc})
        tick(used_up(spent, minutes))
        if over or not math.isfinite(curve[-1]["bpc"] if curve else 0.0):
            break
    bpc = curve[-1]["bpc"]
    if points > 1 and math.isfinite(bpc):
        bpc = bits_per_character(model, contender, texts[1][: race.final_characters])
    return {
        "learning_rate": rate,
        "bpc": bpc if math.isfinite(bpc) else None,
        "updates": updates,
        "characters": updates * each,
        "characters_per_second": updates * each / spent,
        "curve": [point for point in curve if math.isfinite(point["bpc"])],
    }


def used_up(seconds: float, minutes: float) -> float:
    """
    >>> used_up(15, 0.5), used_up(31, 0.5)
    (0.5, 1.0)
    """
    return min(1.0, seconds / (60 * minutes))


def detached(state: Any) -> Any:
    """The same state, without what led to it."""
    if isinstance(state, Tensor):
        return state.detach()
    return None if state is None else type(state)(detached(part) for part in state)


def run(
    contender: Contender,
    texts: tuple[np.ndarray, np.ndarray],
    race: Race,
    progress: Callable[[str], Any],
    kept: dict[str, Any] | None = None,
    keep: Callable[[dict[str, Any]], None] = lambda result: None,
) -> dict[str, Any]:
    """One contender: the learning rates, then the run with the best. `kept` is what an earlier start came to."""
    result = kept or {
        "name": contender.name,
        "about": contender.about,
        "parameters": sum(parameter.numel() for parameter in contender.build().parameters()),
        "rows": contender.rows,
        "length": contender.length,
        "sees": contender.sees,
        "precision": contender.precision,
        "search": [],
    }
    words = f"{result['parameters']:,} parameters"

    def trained(rate: float, minutes: float, points: int) -> dict[str, Any]:
        with progress(f"{contender.name} {rate:g}") as bar:
            return learn(contender, texts, race, rate, minutes, points, lambda done: bar.show_if_due(done, words))

    while (rate := next_rate(result["search"], race.rates)) is not None:
        found = trained(rate, race.search_minutes, 1)
        result["search"].append({"learning_rate": rate, "bpc": found["bpc"], "characters": found["characters"]})
        keep(result)
    best = best_rate(result["search"], race.rates)
    if "bpc" not in result or result["learning_rate"] != best:
        result |= trained(best, race.minutes, race.points)
        keep(result)
    return result


def next_rate(search: Sequence[dict[str, Any]], rates: Sequence[float]) -> float | None:
    """What to try next: the list, then past its end where the best is there. One rate alone is no search.

    >>> found = [{"learning_rate": rate, "bpc": bpc} for rate, bpc in ((0.01, 2.0), (0.03, 1.9))]
    >>> next_rate(found[:1], (0.01, 0.03)), next_rate(found, (0.01, 0.03))
    (0.03, 0.09)
    >>> next_rate([*found, {"learning_rate": 0.09, "bpc": None}], (0.01, 0.03)) is None
    True
    """
    if len(rates) == 1 or len(search) >= len(rates) + BEYOND:
        return None
    if len(search) < len(rates):
        return rates[len(search)]
    best, step = best_rate(search, rates), rates[1] / rates[0]
    tried = [trial["learning_rate"] for trial in search]
    further = best * step if best == max(tried) else best / step if best == min(tried) else None
    return None if further is None else float(f"{further:.6g}")


def best_rate(search: Sequence[dict[str, Any]], rates: Sequence[float]) -> float:
    """That of the lowest cost; the smallest if none came through."""
    found = [trial for trial in search if trial["bpc"] is not None]
    return float(min(found, key=lambda trial: trial["bpc"])["learning_rate"]) if found else min(rates)


def described(race: Race) -> dict[str, Any]:
    return {**asdict(race), "rates": list(race.rates)}
