"""Nothing is timed that computes something else: every contender is held against the reference first (tolerance.py).

Compared are the cost of every character, the last state, and the gradient of every parameter.
"""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gfrnn import ops
from gfrnn.bench.loop import HandLoop
from gfrnn.bench.tolerance import allowed, error
from gfrnn.equations import State
from gfrnn.errors import GfrnnError
from gfrnn.models.char_lm import CharLM
from gfrnn.models.softmax import SymbolNats

Answers = dict[str, Tensor]
Cost = Callable[[Any, Tensor, Tensor], tuple[Tensor, Any]]


class Unequal(GfrnnError):
    """A contender does not compute what the reference does: its speed would mean nothing."""


@dataclass(frozen=True)
class Check:
    """The worst of a contender's answers, as error over what was allowed."""

    model: str
    contender: str
    rows: int
    steps: int
    what: str
    error: float
    allowed: float


def plain_nats(model: CharLM | HandLoop, ids: Tensor, targets: Tensor) -> tuple[Tensor, Any]:
    return model.nats(ids, targets)


def rounded_nats(model: CharLM, ids: Tensor, targets: Tensor) -> tuple[Tensor, Any]:
    """The reference's `CharLM.nats` with products in bfloat16, in whatever dtype the model has.

    Under autocast a model rounds the factors of float32 numbers only; the truth about those is in float64.
    """
    layer, head = model.layer, model.head
    start = layer.initial_state(ids.shape[1])
    state = State(*start) if layer.has_cell else State(start)
    scanned = ops.scan(ids, state, layer.weights(), layer.spec, "reference", products=torch.bfloat16)
    features = scanned.h if layer.output == "all" else scanned.h[..., -layer.hidden_size :]
    rows = features.reshape(-1, features.shape[-1])
    nats = SymbolNats.apply(rows, head.weight, head.bias, targets.reshape(-1), torch.bfloat16)
    last = (scanned.state.h, scanned.state.c) if layer.has_cell else scanned.state.h
    return nats.view(targets.shape), last


def autocast_nats(model: CharLM | HandLoop, ids: Tensor, targets: Tensor) -> tuple[Tensor, Any]:
    """As torch teaches it: the cost under autocast, the backward outside."""
    with torch.autocast("cpu", torch.bfloat16):
        return model.nats(ids, targets)


def answers(model: CharLM | HandLoop, ids: Tensor, targets: Tensor, cost: Cost = plain_nats) -> Answers:
    """Everything to be compared. The cost is summed, not averaged: small gradients would hide behind the floor."""
    model.zero_grad()
    nats, state = cost(model, ids, targets)
    nats.sum().backward()
    if isinstance(model, HandLoop):
        state = model.as_layers(state)
    parts: Iterable[Any] = (state,) if isinstance(state, Tensor) else state
    with torch.no_grad():
        without_backward, _ = cost(model, ids, targets)
    found = {"the cost": nats.detach(), "the cost without a backward": without_backward}
    found |= {name: part.detach() for name, part in zip(("the last h", "the last c"), parts, strict=False)}
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        found[f"the gradient of {name}"] = parameter.grad
    model.zero_grad()
    return found


def reference(model: CharLM, dtype: torch.dtype) -> CharLM:
    model = copy.deepcopy(model).to(dtype)
    model.layer.backend = "reference"
    return model


def as_packed(found: Answers, loop: HandLoop) -> Answers:
    """A CharLM's answers with the gradients laid out as the loop's."""
    prefix = "the gradient of "
    gradients = {name[len(prefix) :]: tensor for name, tensor in found.items() if name.startswith(prefix)}
    others = {name: tensor for name, tensor in found.items() if not name.startswith(prefix)}
    return others | {prefix + name: tensor for name, tensor in loop.packed(gradients).items()}


def check(
    name: str,
    model: CharLM,
    contenders: dict[str, CharLM | HandLoop],
    ids: Tensor,
    targets: Tensor,
    products: torch.dtype | None = None,
) -> list[Check]:
    """One Check per contender; raises Unequal for the first that is wrong. `model` holds the weights of all.

    `products` in bfloat16: as autocast asks the contenders for them.
    """
    dtype, cost = model.head.weight.dtype, plain_nats if products is None else rounded_nats
    truth, plain = (answers(reference(model, kind), ids, targets, cost) for kind in (torch.float64, dtype))
    terms = max(ids.numel(), model.layer.num_layers * model.layer.hidden_size + len(model.vocabulary))
    return held_against(name, contenders, truth, plain, ids, targets, terms, products)


def held_against(
    name: str,
    contenders: dict[str, CharLM | HandLoop],
    truth: Answers,
    plain: Answers,
    ids: Tensor,
    targets: Tensor,
    terms: int,
    products: torch.dtype | None,
) -> list[Check]:
    """`terms` of the longest sums: gradients add up over all characters, products over all that a layer hears."""
    done = []
    cost = plain_nats if products is None else autocast_nats
    for contender, candidate in contenders.items():
        expected, usual = truth, plain
        if isinstance(candidate, HandLoop):
            expected, usual = (as_packed(found, candidate) for found in (truth, plain))
        found = answers(candidate, ids, targets, cost)
        worst = worst_of(found, expected, usual, terms, products)
        result = Check(name, contender, ids.shape[1], ids.shape[0], *worst)
        if result.error > result.allowed:
            raise Unequal(
                f"'{contender}' does not compute what the reference does, so nothing is timed: {name}, "
                f"{result.rows} rows x {result.steps} steps: {result.what} is off by {result.error:.2g}, "
                f"allowed is {result.allowed:.2g}"
            )
        done.append(result)
    return done


def worst_of(
    found: Answers, truth: Answers, plain: Answers, terms: int = 1, products: torch.dtype | None = None
) -> tuple[str, float, float]:
    """Name, error and allowance of the answer that uses most of its allowance.

    The plain computation's error is the worst of all its answers: that of a single one may be small by luck.
    """
    if found.keys() != truth.keys():
        raise Unequal(f"answers differ in kind: {', '.join(sorted(found.keys() ^ truth.keys()))}")
    judged = []
    usual = max(error(plain[name], truth[name]) for name in truth)
    for name, tensor in found.items():
        limit = allowed(tensor.dtype, usual, terms, products)
        judged.append((name, error(tensor, truth[name]), limit))
    if products is not None:
        # Few factors are rounded the other way before they have passed many steps: early on most costs are exact, which
        # they would not be if any factor were rounded elsewhere, or not at all.
        early = (found["the cost"][:2] - truth["the cost"][:2]).abs().median()
        judged.append(("the median of the first costs", float(early), allowed(found["the cost"].dtype)))
    return max(judged, key=lambda item: item[1] / item[2])


@torch.no_grad()
def check_greedy(name: str, contender: str, model: CharLM, prompt: Tensor, drawn: Tensor) -> Check:
    """`drawn` (N,), generated greedily after `prompt` (T,): each symbol is the most probable, or as good as it.

    Two symbols may be equally probable up to rounding, and a text goes its own way after such a tie; so the reference
    reads the contender's own text and says how far each symbol's logit is from the largest.
    """
    text = torch.cat([prompt, drawn])[:-1, None]
    truth, plain = (reference(model, kind)(text)[0][len(prompt) - 1 :, 0] for kind in (torch.float64, torch.float32))
    scale = float(truth.abs().max().clamp(min=1.0))
    lost = truth.amax(1) - truth.gather(1, drawn[:, None])[:, 0]
    limit = 2 * allowed(torch.float32, error(plain, truth))  # both the taken and the largest may be off
    result = Check(name, contender, 1, len(drawn), "the most probable symbol", float(lost.max()) / scale, limit)
    if result.error > result.allowed:
        raise Unequal(
            f"'{contender}' does not generate what the reference would, so nothing is timed: {name}: a symbol's logit "
            f"is {result.error:.2g} below the largest, allowed is {limit:.2g}"
        )
    return result
