"""Encoder and decoder for programs: reads the source, then writes what it prints.

T source symbols, U target symbols, B programs, L layers, H units. Both are the same layer class with the paper's
skips (x_t into every layer, every layer into the softmax); the decoder starts from the encoder's last state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gfrnn.layers import LAYERS
from gfrnn.models.char_lm import LAYER_OPTIONS
from gfrnn.models.pretrained import Pretrained, evaluating
from gfrnn.models.program_batch import Batch, pad
from gfrnn.models.program_symbols import (
    MOST_SYMBOLS,
    SOURCE_CHARACTERS,
    SOURCE_PAD,
    SOURCE_SIZE,
    TARGET_CHARACTERS,
    TARGET_END,
    TARGET_PAD,
    TARGET_SIZE,
    TARGET_START,
    decode_target,
    encode_source,
)
from gfrnn.models.softmax import SoftmaxHead

ALPHABETS = {"source_characters": SOURCE_CHARACTERS, "target_characters": TARGET_CHARACTERS}


@dataclass(frozen=True)
class Answer:
    """What the model says a program prints; `confidence` has one probability per character and one for the end."""

    text: str
    confidence: tuple[float, ...]

    @property
    def probability(self) -> float:
        return math.prod(self.confidence)


class Seq2Seq(Pretrained):
    """The paper's encoder-decoder for Python program evaluation.

    >>> model = Seq2Seq(unit="gru", hidden_size=8)
    >>> isinstance(model.answer("print((3+4))"), str)
    True
    """

    def __init__(
        self,
        unit: str = "lstm",
        hidden_size: int = 200,
        num_layers: int = 3,
        wiring: str = "gated",
        **layer_options: Any,
    ) -> None:
        super().__init__()
        if unit not in LAYERS:
            raise ValueError(f"unit must be one of {', '.join(map(repr, LAYERS))}, got {unit!r}")
        if layer_options.get("batch_first"):
            raise ValueError("a Seq2Seq reads (T, B): batch_first is not supported")
        place = {name: layer_options[name] for name in ("device", "dtype") if name in layer_options}
        options = {"input_skip": True, "output": "all", **layer_options}
        self.encoder = LAYERS[unit](SOURCE_SIZE, hidden_size, num_layers, wiring=wiring, **options)
        self.decoder = LAYERS[unit](TARGET_SIZE, hidden_size, num_layers, wiring=wiring, **options)
        width = hidden_size * (num_layers if self.decoder.output == "all" else 1)
        self.head = SoftmaxHead(width, TARGET_SIZE, **place)

    @property
    def config(self) -> dict[str, Any]:
        layer = self.decoder
        return {
            "unit": layer.unit,
            "hidden_size": layer.hidden_size,
            "num_layers": layer.num_layers,
            "wiring": layer.wiring,
            **ALPHABETS,
            **{name: getattr(layer, name) for name in LAYER_OPTIONS},
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], device: str | None = None) -> Seq2Seq:
        for name, alphabet in ALPHABETS.items():
            if config.get(name) != alphabet:
                raise ValueError(f"its {name} are {config.get(name)!r}, those of the task are {alphabet!r}")
        return cls(**{key: value for key, value in config.items() if key not in ALPHABETS}, device=device)

    def features(self, batch: Batch) -> Tensor:
        """What the softmax reads at every target symbol, the correct ones before it given: (U, B, L*H)."""
        _, state = self.encoder(batch.source, lengths=batch.source_lengths)
        output, _ = self.decoder(batch.decoder_input, state, lengths=batch.target_lengths)
        return output

    def forward(self, batch: Batch) -> Tensor:
        """Logits of every target symbol, the correct ones before it given: (U, B, symbols)."""
        return self.head(self.features(batch))

    def loss(self, batch: Batch) -> Tensor:
        """Nats summed over each program's symbols: (B,). Padding has no part in it."""
        nats = self.head.nats(self.features(batch), batch.target)
        return nats.where(batch.real, 0).sum(0)

    def measure(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of each program its cost in nats, and how many symbols are right, those before given: (B,), (B,).

        A symbol is right when it is the most probable one. A program with all symbols right is exactly a program
        whose greedy answer is right: while that agrees with the target, it is fed what teacher forcing feeds.
        """
        logits, real = self(batch), batch.real
        picked = logits.gather(-1, batch.target[..., None])[..., 0]
        nats = (logits.logsumexp(-1) - picked).where(real, 0).sum(0)
        right = (logits[..., :TARGET_PAD].argmax(-1) == batch.target) & real
        return nats, right.sum(0)

    def _encode(self, sources: Sequence[str]) -> Any:
        ids, lengths = pad([encode_source(source) for source in sources], SOURCE_PAD)
        _, state = self.encoder(ids.to(self.device), lengths=lengths.to(self.device))
        return state

    def _next(self, symbol: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Log-probabilities (B, 12) of what follows `symbol` (B,); padding cannot be said."""
        output, state = self.decoder.step(symbol, state)
        return self.head(output)[..., :TARGET_PAD].log_softmax(-1), state

    @torch.inference_mode()
    def greedy(self, sources: Sequence[str], most: int = MOST_SYMBOLS) -> list[Answer]:
        """The most probable symbol, again and again, until the end mark (or `most` symbols)."""
        at_least_1(most=most)
        if not sources:
            return []
        with evaluating(self):
            return self._greedy(sources, most)

    def _greedy(self, sources: Sequence[str], most: int) -> list[Answer]:
        state = self._encode(sources)
        symbol = torch.full((len(sources),), TARGET_START, device=self.device)
        symbols: list[Tensor] = []
        confidences: list[Tensor] = []
        done = torch.zeros(len(sources), dtype=torch.bool, device=self.device)
        while len(symbols) < most and not done.all():
            log_p, state = self._next(symbol, state)
            best, symbol = log_p.max(-1)
            symbols.append(symbol)
            confidences.append(best.exp())
            done |= symbol == TARGET_END
        rows = zip(torch.stack(symbols, 1).tolist(), torch.stack(confidences, 1).tolist(), strict=True)
        return [_answer(ids, confidence) for ids, confidence in rows]

    @torch.inference_mode()
    def beam(self, source: str, width: int = 8, most: int = MOST_SYMBOLS) -> list[Answer]:
        """The `width` most probable answers found by beam search, best first."""
        at_least_1(width=width, most=most)
        with evaluating(self):
            return self._beam(source, width, most)

    def _beam(self, source: str, width: int, most: int) -> list[Answer]:
        state = self._encode([source])
        going, ended = [_Hypothesis(0.0, (), ())], list[_Hypothesis]()
        for _ in range(most):
            last = torch.tensor([(TARGET_START, *row.ids)[-1] for row in going], device=self.device)
            log_p, state = self._next(last, state)
            total = log_p + log_p.new_tensor([row.score for row in going])[:, None]
            parents, grown = [], []
            for place in total.flatten().topk(min(width, total.numel())).indices.tolist():
                parent, symbol = divmod(place, TARGET_PAD)
                row = going[parent].then(symbol, float(log_p[parent, symbol]))
                if symbol == TARGET_END:
                    ended.append(row)
                else:
                    parents.append(parent)
                    grown.append(row)
            going = grown
            ended = sorted(ended, reverse=True)[:width]
            # Scores only fall, so nothing open can pass a full list of better ones.
            if not going or (len(ended) == width and ended[-1].score >= going[0].score):
                return [row.answer() for row in ended]
            state = _choose(state, torch.tensor(parents, device=self.device))
        return [row.answer() for row in sorted([*ended, *going], reverse=True)[:width]]

    def answer(self, source: str, beam: int = 1) -> str:
        """What the model says `source` prints: greedy, or the best of a beam."""
        found = self.greedy([source]) if beam == 1 else self.beam(source, beam)
        return found[0].text


def at_least_1(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")


class _Hypothesis(NamedTuple):
    """An answer in the making: its log-probability, its symbols, and the log-probability of each."""

    score: float
    ids: tuple[int, ...]
    steps: tuple[float, ...]

    def then(self, symbol: int, log_p: float) -> _Hypothesis:
        return _Hypothesis(self.score + log_p, (*self.ids, symbol), (*self.steps, log_p))

    def answer(self) -> Answer:
        return _answer(self.ids, [math.exp(step) for step in self.steps])


def _answer(ids: Sequence[int], confidence: Sequence[float]) -> Answer:
    said = ids.index(TARGET_END) + 1 if TARGET_END in ids else len(ids)
    return Answer(decode_target(ids), tuple(confidence[:said]))


def _choose(state: Any, rows: Tensor) -> Any:
    """The states (L, B, H) of some rows."""
    if isinstance(state, tuple):
        return tuple(part.index_select(1, rows) for part in state)
    return state.index_select(1, rows)
