"""Drawing text from a model, byte by byte.

How one symbol is drawn from its logits (any faster implementation must do the same, in float64):
1. temperature 0 takes the largest logit, the lowest symbol number among equals; otherwise logits / temperature;
2. top_k keeps the k largest (among equals the lower symbol numbers);
3. softmax over those kept;
4. top_p keeps the fewest most probable symbols whose probabilities sum to at least top_p (ties as in 2);
5. inverse CDF: with u uniform in [0, 1), the first kept symbol, in order of symbol number, at which the running sum of
   probabilities exceeds u times their total.
Sample number i of seed s takes its u's in order from numpy's default_rng([s, i]).
"""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gfrnn import checks
from gfrnn.equations import State
from gfrnn.errors import UsageError
from gfrnn.layers import GatedFeedback
from gfrnn.models.char_lm import CharLM
from gfrnn.models.pretrained import evaluating
from gfrnn.models.text_loop import TextLoop
from gfrnn.ops.manual import IMPLEMENTS
from gfrnn.ops.manual_plain import Steps

PROMPT_CHUNK = 1000
LOOP_CHUNK = 128  # characters the C++ loop draws before they are shown


@dataclass(frozen=True)
class Sampling:
    """How bytes are drawn, see above."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise UsageError(f"temperature must be 0 or more, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise UsageError(f"top_k must be 1 or more, got {self.top_k}")
        if self.top_k is not None and self.top_k > 256:  # there are no more bytes
            object.__setattr__(self, "top_k", None)
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.seed is not None and self.seed < 0:
            raise UsageError(f"seed must be 0 or more, got {self.seed}")


def draw(logits: Tensor, uniform: Tensor, sampling: Sampling) -> Tensor:
    """One symbol per row: logits (B, V), uniform (B,) in [0, 1) -> (B,).

    >>> logits = torch.tensor([[0.0, 9.0, 1.0]])
    >>> draw(logits, torch.tensor([0.999]), Sampling(top_k=1))
    tensor([1])
    """
    logits = logits.double()
    if sampling.temperature == 0:
        return logits.argmax(1)
    logits = logits / sampling.temperature
    if sampling.top_k is None and sampling.top_p is None:
        return inverse_cdf(torch.softmax(logits, dim=1), uniform)
    order = logits.argsort(dim=1, descending=True, stable=True)
    kept = torch.zeros_like(logits, dtype=torch.bool)
    kept.scatter_(1, order[:, : sampling.top_k], True)
    p = torch.softmax(logits.masked_fill(~kept, -torch.inf), dim=1)
    if sampling.top_p is not None:
        in_order = p.gather(1, order)
        before = in_order.cumsum(1) - in_order
        kept.zero_().scatter_(1, order, before < sampling.top_p)
        p = p.masked_fill(~kept, 0)
    return inverse_cdf(p, uniform)


def inverse_cdf(p: Tensor, uniform: Tensor) -> Tensor:
    """Probabilities (B, V) that need not sum to 1, uniform (B,) -> symbols (B,)."""
    total = p.cumsum(1)
    above = (total > uniform.double()[:, None] * total[:, -1:]) & (p > 0)
    return above.int().argmax(1)


def encode_prompt(model: CharLM, prompt: bytes | str, unknown: str = "refuse") -> np.ndarray:
    data = prompt.encode("utf-8", "surrogateescape") if isinstance(prompt, str) else bytes(prompt)
    if not data:
        raise UsageError("the prompt is empty: give at least one character to go on from")
    return model.vocabulary.encode(data, name="the prompt", unknown=unknown)


def stream(
    model: CharLM,
    prompt: bytes | str,
    max_new: int,
    sampling: Sampling,
    samples: int = 1,
    unknown: str = "refuse",
    half: bool = False,
) -> Iterator[tuple[bytes, ...]]:
    """Continue `prompt`: after each step one byte for every sample, `max_new` times. What is wrong is said at once.

    Samples of a float32 model on the CPU are drawn by the C++ loop, all of them in one pass over the weights; with
    `half` it reads weights stored in 16 bits. A sample is the text it would be without the others, to the byte.
    """
    if max_new < 0 or samples < 1:
        raise UsageError(f"max_new must be 0 or more and samples 1 or more, got {max_new} and {samples}")
    ids = torch.from_numpy(encode_prompt(model, prompt, unknown).astype(np.int64)).to(model.device)
    reasons = TextLoop.why_not(model.layer, model.head)
    if half and reasons:
        raise UsageError(f"half: {'; '.join(reasons)}")
    seed = secrets.randbits(64) if sampling.seed is None else sampling.seed
    generators = [np.random.default_rng([seed, i]) for i in range(samples)]
    return drawn(model, ids, max_new, sampling, generators, half, in_loop=not reasons)


@torch.no_grad()
def drawn(
    model: CharLM,
    ids: Tensor,
    max_new: int,
    sampling: Sampling,
    generators: list[np.random.Generator],
    half: bool,
    in_loop: bool,
) -> Iterator[tuple[bytes, ...]]:
    """What `stream` promises, one sample per generator."""
    # Never across a yield: whoever asks may train in between, or never ask again.
    with evaluating(model):
        logits, state = read_prompt(model, ids)
    if in_loop:
        yield from in_one_loop(model, logits, state, max_new, sampling, generators, half)
        return
    # Not as one batch: the sums of a matrix product may be in another order for more rows, and the texts other texts.
    step_on, states, rows = stepper(model.layer), [state] * len(generators), [logits] * len(generators)
    for step in range(max_new):
        uniform = torch.tensor([generator.random() for generator in generators], dtype=torch.float64)
        symbols = draw(torch.cat(rows).cpu(), uniform, sampling)
        yield tuple(model.vocabulary.decode([symbol]) for symbol in symbols.tolist())
        if step + 1 < max_new:
            with evaluating(model):
                for i, symbol in enumerate(symbols.to(model.device).split(1)):
                    features, states[i] = step_on(symbol, states[i])
                    rows[i] = model.head(features)


def stepper(layer: GatedFeedback) -> Callable[[Tensor, Any], tuple[Tensor, Any]]:
    """`layer.step` for symbols, with the weights prepared once for all steps, unless another backend was asked for."""
    if layer.backend not in ("auto", "manual") or IMPLEMENTS.why_not_kind(layer.spec):
        return layer.step
    steps = Steps(layer.spec, layer.weights(), checks.products(layer.weight_ih_l0))
    has_cell, every_layer = layer.has_cell, layer.output == "all"

    def step(symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
        with checks.no_autocast(layer.weight_ih_l0):  # what rounds has been said to `steps`
            new = steps(symbols, State(*state) if has_cell else State(state))
        features = new.h.transpose(0, 1).flatten(1) if every_layer else new.h[-1]
        return features, tuple(new) if has_cell else new.h

    return step


def in_one_loop(
    model: CharLM,
    logits: Tensor,
    state: Any,
    max_new: int,
    sampling: Sampling,
    generators: list[np.random.Generator],
    half: bool,
) -> Iterator[tuple[bytes, ...]]:
    """What `stream` yields, one sample per generator, drawn by the C++ loop.

    The weights are packed for every call: nothing that is cheaper to ask says for sure that they are the same.
    """
    loop, samples = TextLoop(model.layer, model.head, half), len(generators)
    logits, state = logits.expand(samples, -1), expand(state, samples)
    for start in range(0, max_new, LOOP_CHUNK):
        size = min(LOOP_CHUNK, max_new - start)
        uniform = torch.from_numpy(np.stack([generator.random(size) for generator in generators]))
        symbols, logits, state = loop.run(logits, state, uniform, sampling.temperature, sampling.top_k, sampling.top_p)
        texts = [model.vocabulary.decode(row) for row in symbols.tolist()]
        yield from zip(*([text[i : i + 1] for i in range(size)] for text in texts), strict=True)


def read_prompt(model: CharLM, ids: Tensor) -> tuple[Tensor, Any]:
    """The logits (1, V) after the last symbol of `ids` (T,), and the state; however long, in bounded memory."""
    state, features = None, None
    for part in ids.split(PROMPT_CHUNK):
        features, state = model.layer(part[:, None], state)
    assert features is not None
    return model.head(features[-1]), state


def expand(state: Any, samples: int) -> Any:
    """The state (L, 1, H), or pair of them, once for every sample."""
    if isinstance(state, tuple):
        return tuple(expand(part, samples) for part in state)
    return state.repeat(1, samples, 1)
