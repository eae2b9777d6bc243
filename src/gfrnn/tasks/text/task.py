"""Character language modelling on enwik8 or any other text: the paper's main task, as training/loop.py wants it."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gfrnn.errors import DataError, UsageError
from gfrnn.models.char_lm import CharLM
from gfrnn.models.config import LayerConfig
from gfrnn.models.vocabulary import Vocabulary
from gfrnn.tasks.growth import Growth
from gfrnn.tasks.text import corpus
from gfrnn.tasks.text.config import TextConfig
from gfrnn.tasks.text.score import score_text
from gfrnn.tasks.world import World, flatten, unflatten


class TextTask:
    """Every row of the minibatch reads the whole training text, in steps of `length`, from a start of its own.

    The starts are equally spaced, so that one pass of all rows together is one epoch, and the seed turns the whole
    ring: a batch is a function of (seed, step) alone.
    """

    name = "hutter"
    metric = "bpc"
    higher_is_better = False
    model_class = CharLM

    def __init__(self, data: TextConfig, model: LayerConfig, seed: int, known: bytes | None = None) -> None:
        self.options, self.model_options = data, model
        self.corpus = corpus.load(self.options.data)
        self.reads = self.corpus.name
        self.known = known
        self.vocabulary = self.choose_vocabulary()
        self.numbers = self.vocabulary.numbers("replace" if self.options.unknown == "replace" else "refuse")
        self.train, self.valid = self.corpus.split("train"), self.corpus.split("valid")
        self.rows, self.length = self.options.rows, self.options.length
        self.growth = Growth(self.options.grow_after, self.options.grow_length)
        self.characters = self.rows * self.length
        self.epoch = len(self.train) / self.characters
        if len(self.valid) < 2:
            raise DataError(f"{self.corpus.name}: {len(self.corpus.bytes)} bytes leave too few for validation")
        longest = self.length * self.growth.at(self.growth.after)
        if len(self.train) <= self.rows * longest:
            raise DataError(
                f"{self.corpus.name}: its {len(self.train)} training characters are fewer than one minibatch of "
                f"{self.rows} rows x {longest}: use a longer text, or smaller --rows and --length"
            )

    def choose_vocabulary(self) -> Vocabulary:
        """The symbols of the model it starts from, else the paper's 205; all 256 if there are others to be learnt."""
        usual, text = Vocabulary(self.known), self.corpus
        fits = text.is_enwik8 and self.known is None
        if self.options.unknown == "refuse" and not fits:
            usual.check(text.bytes, text.name)
        if self.options.unknown == "learn" and not fits and usual.count_unknown(text.bytes):
            return Vocabulary(bytes(range(256)))
        return usual

    def notes(self) -> list[str]:
        """What the user should know about the data."""
        if self.corpus.fallback:
            return [corpus.EXCERPT_NOTE]
        usual = Vocabulary(self.known)
        if len(self.vocabulary) > len(usual):
            whose = "enwik8 does not have" if self.known is None else "the model does not know"
            known = f"the usual {len(usual)}" if self.known is None else f"its {len(usual)}"
            return [f"{self.corpus.name} has bytes that {whose}: the model knows all 256, not {known}"]
        if self.options.unknown == "replace" and (count := self.vocabulary.count_unknown(self.corpus.bytes)):
            return [f"{self.corpus.name}: {count:,} bytes outside the vocabulary are read as '?'"]
        return []

    def identity(self) -> dict[str, Any]:
        """What a resumed run must find unchanged."""
        return {"bytes": len(self.corpus.bytes), "sha256": self.corpus.sha256}

    def build_model(self, seed: int) -> CharLM:
        torch.manual_seed(seed)
        try:
            return CharLM(vocabulary=self.vocabulary.symbols, **dataclasses.asdict(self.model_options))
        except ValueError as error:
            raise UsageError(str(error)) from error

    def initial_state(self, model: CharLM) -> Any:
        return model.layer.initial_state(self.rows)

    def carried(self, state: Any, seed: int, step: int, rows: slice) -> Any:
        """What update `step` starts from: `state`, but for the global rows in `rows` that begin anew."""
        every, probability = self.options.reset_every, self.options.reset_probability
        if state is None or (every > 0 and step % every == 0):
            return None
        if not probability:
            return state
        keeps = torch.from_numpy(np.random.default_rng([seed, step]).random(self.rows)[rows] >= probability)
        parts = flatten(state)
        return unflatten(tuple(part * keeps.to(part)[:, None] for part in parts))

    def batch(self, seed: int, step: int, rows: slice) -> Tensor:
        """Symbol numbers (length + 1, B) of the global rows in `rows`: what is read, one character ahead.

        The length is grown from the update on that the options say.
        """
        size = len(self.train)
        row = np.arange(self.rows)[rows]
        start = turn(seed, size) + row * size // self.rows + self.growth.portions(step) * self.length
        index = (start + np.arange(self.length * self.growth.at(step) + 1)[:, None]) % size
        return torch.from_numpy(self.numbers[self.train[index]].astype(np.int64))

    def loss(self, model: CharLM, batch: Tensor, state: Any) -> tuple[Tensor, int, Any]:
        """Sum of nats, number of characters, and the state after them."""
        nats, state = model.nats(batch[:-1], batch[1:], state)
        return nats.sum(), nats.numel(), state

    def validate(
        self, model: CharLM, full: bool, tick: Callable[[], None], world: World | None = None
    ) -> dict[str, float]:
        """Bits per character of the validation split (of its beginning, if so configured and not `full`)."""
        limit = self.options.validate_chars
        part = self.valid[:limit] if limit and not full else self.valid
        score = score_text(model, self.numbers[part], tick=lambda fraction: tick(), world=world or World())
        return {"bpc": score.bpc, "characters_validated": score.characters}

    def validates_all(self) -> bool:
        return not 0 < self.options.validate_chars < len(self.valid)

    def show(self, nats: float) -> str:
        return f"{nats / math.log(2):.3f} BPC"


@functools.lru_cache(maxsize=8)
def turn(seed: int, size: int) -> int:
    """Where in the text the first row starts."""
    return int(np.random.default_rng(seed).integers(size))
