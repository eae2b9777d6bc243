"""Dynamic evaluation: a model that goes on learning from the text it is scored on, each block after it was scored.

Krause, Kahembwe, Murray and Renals (2018). Block by block of one stream, from the state the block before ended with:

    cost of the block, by the weights w that all blocks before it made; g = its gradient
    w = w + pull (w_trained - w) - learning_rate g / scale

    rule sgd   scale = 1                      pull = decay
    rule rms   scale = r + EPSILON mean(r)    pull = min(1, decay r / mean(r)),  r = root of the mean squared gradient

where the mean of r is that over all weights. r is measured before, on other text (`mean_squares`). No number here ever
stands for the model as it is on the disk: that is `score_text`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from gfrnn.errors import NonFinite, UsageError
from gfrnn.models.char_lm import CharLM
from gfrnn.models.pretrained import evaluating
from gfrnn.tasks.text.score import BLOCK, Score, nothing
from gfrnn.tasks.world import flatten, unflatten

EPSILON = 0.1  # of the mean r: what keeps weights that hardly ever had a gradient from leaping
PLACES = 20  # stretches of the training text that mean squared gradients are gathered in
RULES = ("sgd", "rms")


@dataclass(frozen=True)
class Settings:
    """How a model goes on learning."""

    rule: Literal["sgd", "rms"]
    learning_rate: float
    block: int  # characters
    decay: float = 0.0

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise UsageError(f"the rule of dynamic evaluation is sgd or rms, not {self.rule!r}")
        if not (math.isfinite(self.learning_rate) and self.learning_rate >= 0):
            raise UsageError(f"the learning rate of dynamic evaluation must be 0 or more, got {self.learning_rate}")
        if self.block < 1:
            raise UsageError(f"a block of dynamic evaluation has 1 character or more, got {self.block}")
        if not 0 <= self.decay <= 1:
            raise UsageError(f"the decay of dynamic evaluation is between 0 and 1, got {self.decay}")

    def to_mapping(self) -> dict[str, Any]:
        return asdict(self)


def gradient(model: CharLM, window: Tensor, state: Any) -> tuple[Tensor, list[Tensor], Any]:
    """Nats of every symbol but the first of `window` (n + 1,), the gradient of their mean, and the state after them."""
    nats, state = model.nats(window[:-1, None], window[1:, None], state)
    grads = torch.autograd.grad(nats.mean(), list(model.parameters()))
    return nats.detach(), list(grads), unflatten(tuple(part.detach() for part in flatten(state)))


def windows(model: CharLM, ids: np.ndarray, block: int) -> Iterator[Tensor]:
    """`block` symbols at a time and the one after them; the last may be shorter."""
    for start in range(0, len(ids) - 1, block):
        yield torch.from_numpy(ids[start : start + block + 1].astype(np.int64)).to(model.device)


def stretches(size: int, block: int, characters: int) -> list[slice]:
    """Where in a text of `size` symbols mean squared gradients are gathered: PLACES parts, about `characters` in all.

    >>> stretches(1_000_000, 50, 100_000)[:2]
    [slice(0, 5001, None), slice(52368, 57369, None)]
    """
    length = max(1, min(characters, size - 1) // PLACES // block) * block
    if size <= length:
        raise UsageError(f"{size} characters are too few for mean squared gradients of blocks of {block}")
    starts = np.linspace(0, size - length - 1, PLACES).astype(np.int64).tolist()
    return [slice(start, start + length + 1) for start in starts]


def mean_squares(
    model: CharLM, texts: Sequence[np.ndarray], block: int, tick: Callable[[float], None] = nothing
) -> list[Tensor]:
    """The mean squared gradient of every parameter over the blocks of `texts`, each read from the zero state."""
    totals, count = [torch.zeros_like(parameter) for parameter in model.parameters()], 0
    with evaluating(model):
        for place, ids in enumerate(texts):
            state = None
            for window in windows(model, ids, block):
                _, grads, state = gradient(model, window, state)
                torch._foreach_addcmul_(totals, grads, grads)
                count += 1
            tick((place + 1) / len(texts))
    torch._foreach_div_(totals, count)
    return totals


class Learner:
    """The steps of a rule from the weights that `model` has now, which are the trained ones."""

    def __init__(self, model: CharLM, settings: Settings, squares: list[Tensor] | None = None) -> None:
        self.settings = settings
        self.weights = [parameter.detach() for parameter in model.parameters()]
        self.trained = [weight.clone() for weight in self.weights]
        self.rates: list[Tensor] | None = None
        if settings.rule == "rms":
            if squares is None:
                raise ValueError("the rule rms needs mean squared gradients: see mean_squares")
            roots = torch._foreach_sqrt(squares)
            mean = math.fsum(float(root.double().sum()) for root in roots) / sum(root.numel() for root in roots)
            mean = mean or 1.0  # a model without any gradient stays as it is
            self.rates = [settings.learning_rate / (root + EPSILON * mean) for root in roots]
            self.pulls = [(settings.decay / mean * root).clamp_(max=1.0) for root in roots]

    @torch.no_grad()
    def step(self, grads: list[Tensor]) -> None:
        """One block's gradient, taken at the weights of now."""
        if self.rates is None:
            if self.settings.decay:
                torch._foreach_lerp_(self.weights, self.trained, self.settings.decay)
            torch._foreach_add_(self.weights, grads, alpha=-self.settings.learning_rate)
        else:
            if self.settings.decay:
                torch._foreach_lerp_(self.weights, self.trained, self.pulls)
            torch._foreach_addcmul_(self.weights, grads, self.rates, value=-1.0)

    @torch.no_grad()
    def undo(self) -> None:
        """The trained weights again, to the bit."""
        torch._foreach_copy_(self.weights, self.trained)


def score_dynamically(
    model: CharLM,
    ids: np.ndarray,
    settings: Settings,
    squares: list[Tensor] | None = None,
    tick: Callable[[float], None] = nothing,
) -> Score:
    """The cost of every symbol in `ids` given all before it, by weights that learnt from the blocks before its own.

    One stream from the zero state: a second one, further on, would let the model learn from text that it is scored on
    later. Afterwards the model has its trained weights again. `tick` is told the fraction done.
    """
    count = len(ids)
    if count < 2:
        raise ValueError(f"a text of {count} symbols cannot be scored: it needs two or more")
    if any(parameter.dtype != torch.float32 for parameter in model.parameters()):
        raise ValueError("dynamic evaluation is for float32 weights: model.float()")
    nats, state, done = np.zeros(count), None, 1
    nats[0] = float(model.first_nats()[int(ids[0])])
    learner = Learner(model, settings, squares)
    try:
        with evaluating(model):
            for window in windows(model, ids, settings.block):
                cost, grads, state = gradient(model, window, state)
                nats[done : done + len(cost)] = cost[:, 0].cpu().double().numpy()
                done += len(cost)
                if not np.isfinite(nats[done - len(cost) : done]).all():
                    raise NonFinite(
                        f"the model lost its way after {done:,} characters: a smaller learning rate than "
                        f"{settings.learning_rate:g} may help"
                    )
                if done < count:
                    learner.step(grads)
                tick(done / count)
    finally:
        learner.undo()
    bits = np.add.reduceat(nats, np.arange(0, count, BLOCK)) / math.log(2)
    return Score(math.fsum(bits), count, bits)
