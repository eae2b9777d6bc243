"""Generation: our `generate`, of one text or of many at once, and the contenders that write a character at a time."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gfrnn.bench.accounting import bytes_per_character
from gfrnn.bench.clock import Entry
from gfrnn.bench.contenders import build, count, our_model
from gfrnn.bench.equality import Check, check_greedy
from gfrnn.bench.loop import HandLoop
from gfrnn.bench.plan import Size
from gfrnn.bench.torch_models import TorchLM
from gfrnn.errors import DataError
from gfrnn.models.char_lm import CharLM

# The one place that knows how weights stored in half precision are asked for, and (half_rounded) what they then are.
HALF_ARGUMENTS: dict[str, Any] = {"half": True}
HALF = "half"
MANY, TEXTS = "64 texts", 64
SLOW = ("manual", "reference")
PROMPT = b"a"
MOST_BYTES = 2e10  # of weights read by one call
SCORED = 20_000  # characters of the test text for the BPC


def entry(contender: str, size: Size, characters: int) -> Entry:
    """Generating `characters` after a prompt of one, at temperature 1; a tenth for backends not made for it.

    A tenth, too, of each of many texts.
    """
    half, texts = contender.endswith(HALF), TEXTS if contender.endswith(MANY) else 1
    if contender in SLOW or texts > 1:
        characters = max(1, characters // 10)
    model = build(backend_of(contender), size)
    run: Callable[[], Any]
    if isinstance(model, CharLM):
        options = (HALF_ARGUMENTS if half else {}) | ({"samples": texts} if texts > 1 else {})
        run = functools.partial(model.generate, PROMPT, characters, seed=1, **options)
    else:
        assert isinstance(model, HandLoop | TorchLM)
        run = functools.partial(model.generate, prompt_of(our_model(size)), characters)
    read = 0.0 if isinstance(model, TorchLM) else float(bytes_per_character(size) * characters) / (2 if half else 1)
    return Entry(contender, run, characters=characters * texts, bytes=read, parameters=count(model))


def affordable(size: Size, characters: int) -> int:
    """`characters`, or fewer of a model so large that they would take minutes."""
    return max(1, min(characters, int(MOST_BYTES / bytes_per_character(size))))


def prompt_of(model: CharLM) -> Tensor:
    return torch.from_numpy(model.vocabulary.encode(PROMPT).astype("int64"))


def check_contender(contender: str, size: Size, characters: int) -> Check | None:
    """Greedy text is what the reference would write (with rounded weights, if the contender's are)."""
    half = contender.endswith(HALF)
    model = build(backend_of(contender), size)
    exact = our_model(size).as_half() if half else our_model(size)
    prompt = prompt_of(exact)
    if isinstance(model, CharLM):
        options = {"temperature": 0, **(HALF_ARGUMENTS if half else {})}
        if contender.endswith(MANY):
            text = model.generate(PROMPT, characters, samples=TEXTS, **options)[-1]
        else:
            text = model.generate(PROMPT, characters, **options)
        drawn = torch.from_numpy(exact.vocabulary.encode(text).astype("int64"))
    elif isinstance(model, HandLoop):
        drawn = model.generate(prompt, characters, temperature=0)
    else:
        return None  # a peer is another model: there is nothing it should equal
    return check_greedy(str(size), contender, exact, prompt, drawn)


def backend_of(contender: str) -> str:
    """
    >>> backend_of("cpu half"), backend_of("cpu 64 texts")
    ('cpu', 'cpu')
    """
    return contender.removesuffix(f" {HALF}").removesuffix(f" {MANY}")


def with_variants(names: list[str]) -> list[str]:
    """The contenders, and after the fused loop the one over half-precision weights, and many texts at once."""
    return [one for name in names for one in ([name, f"{name} {HALF}", f"{name} {MANY}"] if name == "cpu" else [name])]


def bits_per_character(size: Size) -> dict[str, Any]:
    """BPC on the text in the package, with exact weights and with weights stored in half precision.

    Of the pretrained model if the package has one, else of fresh weights, whose difference says as much.
    """
    from gfrnn.models.pretrained import PACKAGED
    from gfrnn.tasks.text import corpus

    try:
        name, model = PACKAGED, CharLM.from_pretrained(PACKAGED)
    except DataError:
        name, model = f"{size}, untrained", our_model(size, "auto")
    text = bytes(corpus.excerpt().split("test")[:SCORED])
    exact, half = (float(one.score(text, unknown="replace").mean()) for one in (model, model.as_half()))
    return {"model": name, "characters": len(text), "exact": exact, HALF: half}
