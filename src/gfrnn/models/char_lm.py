"""The paper's character model: one-hot bytes -> gated-feedback layer -> softmax over all layers' states.

T time, B rows, V symbols, K = L*H features of the softmax.
"""

import copy
import math
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gfrnn.layers import GFGRU, GFLSTM, GFRNN, GatedFeedback
from gfrnn.models.pretrained import Pretrained, evaluating
from gfrnn.models.softmax import symbol_nats
from gfrnn.ops.cpu.text import half_rounded
from gfrnn.vocabulary import Vocabulary

LAYERS: dict[str, type[GatedFeedback]] = {"tanh": GFRNN, "gru": GFGRU, "lstm": GFLSTM}
LAYER_OPTIONS = {
    "bias": True,
    "dropout": 0.0,
    "gates_see": "all",
    "input_skip": True,
    "output": "all",
    "forget_bias": 0.0,
}
SCORE_CHUNK = 512


class CharLM(Pretrained):
    """A language model over bytes. The paper's skips (input to every layer, every layer to the softmax) are on.

    >>> model = CharLM(hidden_size=8, num_layers=2)
    >>> ids = torch.tensor([[1, 2], [3, 4], [5, 6]])  # (T, B) symbol numbers
    >>> loss, state = model.loss(ids[:-1], ids[1:])
    >>> len(model.score(b"abc"))
    3
    """

    def __init__(
        self,
        unit: str = "lstm",
        hidden_size: int = 140,
        num_layers: int = 3,
        wiring: str = "gated",
        vocabulary: bytes | None = None,
        **layer_options: Any,
    ) -> None:
        super().__init__()
        if unit not in LAYERS:
            raise ValueError(f"unit must be one of {', '.join(map(repr, LAYERS))}, got {unit!r}")
        if layer_options.get("batch_first"):
            raise ValueError("a CharLM reads (T, B): batch_first is not supported")
        place = {name: layer_options[name] for name in ("device", "dtype") if name in layer_options}
        options = {"input_skip": True, "output": "all", **layer_options}
        self.vocabulary = Vocabulary(vocabulary)
        self.layer = LAYERS[unit](len(self.vocabulary), hidden_size, num_layers, wiring=wiring, **options)
        width = hidden_size * (num_layers if self.layer.output == "all" else 1)
        self.head = nn.Linear(width, len(self.vocabulary), **place)
        self.reset_parameters()

    def reset_parameters(self, input_std: float = 0.0) -> None:
        """The layer's own start; softmax weights uniform(-0.08, 0.08), its bias 0.

        `input_std` > 0 draws the columns of the input weights that read a symbol from normal(0, input_std) instead of
        uniform(-0.08, 0.08): a one-hot input has a fan-in of 1, and the paper's scale starts the network nearly silent.
        """
        self.layer.reset_parameters()
        nn.init.uniform_(self.head.weight, -0.08, 0.08)
        nn.init.zeros_(self.head.bias)
        if input_std > 0:
            for j in range(self.layer.num_layers if self.layer.input_skip else 1):
                with torch.no_grad():
                    nn.init.normal_(getattr(self.layer, f"weight_ih_l{j}")[:, : len(self.vocabulary)], std=input_std)

    @property
    def config(self) -> dict[str, Any]:
        layer = self.layer
        return {
            "unit": layer.unit,
            "hidden_size": layer.hidden_size,
            "num_layers": layer.num_layers,
            "wiring": layer.wiring,
            "vocabulary": list(self.vocabulary.symbols),
            **{name: getattr(layer, name) for name in LAYER_OPTIONS},
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], device: str | None = None) -> "CharLM":
        return cls(**{**config, "vocabulary": bytes(config["vocabulary"])}, device=device)

    def forward(self, ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Symbol numbers (T, B) -> logits of the next symbol (T, B, V), and the state to go on from."""
        features, state = self.layer(ids, state)
        return self.head(features), state

    def nats(self, ids: Tensor, targets: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Cost in nats of each target (T, B), and the state to go on from."""
        features, state = self.layer(ids, state)
        return symbol_nats(features, self.head.weight, self.head.bias, targets), state

    def loss(self, ids: Tensor, targets: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Mean cost in nats (divide by ln 2 for bits per character), and the state to go on from."""
        nats, state = self.nats(ids, targets, state)
        return nats.mean(), state

    def first_nats(self) -> Tensor:
        """Cost of each symbol as the first of a text, where there is no state to go by: (V,)."""
        return -torch.log_softmax(self.head.bias.detach(), dim=0)

    @torch.no_grad()
    def score(self, data: bytes, unknown: str = "refuse") -> np.ndarray:
        """Bits of every byte, given all bytes before it: float64, as long as `data`. Their mean is the BPC.

        A byte the model does not know is refused, or, with unknown="replace", read as '?'; a warning says how many.
        """
        replaced = self.vocabulary.count_unknown(np.frombuffer(data, dtype=np.uint8)) if unknown == "replace" else 0
        if replaced:
            warnings.warn(f"{replaced} bytes outside the vocabulary are read as '?'", stacklevel=3)
        ids = torch.from_numpy(self.vocabulary.encode(data, unknown=unknown).astype(np.int64))
        if len(ids) == 0:
            return np.zeros(0)
        parts, state = [self.first_nats()[ids[:1]]], None
        with evaluating(self):
            for start in range(0, len(ids) - 1, SCORE_CHUNK):
                window = ids[start : start + SCORE_CHUNK + 1, None]
                nats, state = self.nats(window[:-1], window[1:], state)
                parts.append(nats.flatten())
        return torch.cat(parts).double().numpy() / math.log(2)

    def as_half(self) -> "CharLM":
        """A copy whose matrices read as their 16-bit copies do: the model that `generate(half=True)` draws from."""
        twin = copy.deepcopy(self)
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.copy_(half_rounded(parameter))
        return twin

    def generate(
        self,
        prompt: bytes | str,
        max_new: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        *,
        half: bool = False,
    ) -> bytes:
        """The `max_new` bytes that follow `prompt` (which is not repeated); generate.py says how they are drawn.

        `half` reads weights stored in 16 bits: faster, and not quite the same model.
        """
        from gfrnn.generate import Sampling, stream

        sampling = Sampling(temperature, top_k, top_p, seed)
        return b"".join(chunk for (chunk,) in stream(self, prompt, max_new, sampling, half=half))
