"""The paper's character model: one-hot bytes -> gated-feedback layer -> softmax over all layers' states.

T time, B rows, V symbols, K = L*H features of the softmax.
"""

import copy
import math
import warnings
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from gfrnn.layers import LAYERS
from gfrnn.models.pretrained import Pretrained, evaluating
from gfrnn.models.softmax import SoftmaxHead
from gfrnn.models.text_loop import half_rounded
from gfrnn.models.vocabulary import Vocabulary

# Those a saved model keeps. Not input_std, start, gate_bias_own and _other: they say how weights started, and these are
# there.
LAYER_OPTIONS = {
    "bias": True,
    "dropout": 0.0,
    "gates_see": "all",
    "input_skip": True,
    "normalise": False,
    "output": "all",
    "forget_bias": 0.0,
}
SCORE_CHUNK = 512


class CharLM(Pretrained):
    """A language model over bytes. The paper's skips (input to every layer, every layer to the softmax) are on.

    `layer_options` are those of the layer, `input_std` and `forget_bias` among them.

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
        self.head = SoftmaxHead(width, len(self.vocabulary), **place)

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

    @torch.no_grad()
    def start_from(self, other: Pretrained) -> None:
        """Take over the weights of a model of the same architecture, whose symbols are among this one's.

        A symbol it lacks keeps its input weights; its row of the softmax becomes the mean of the other's rows, which
        makes it improbable until it is seen (fresh rows would not: the others' scale is that of a trained model).
        """
        assert isinstance(other, CharLM)
        places = torch.from_numpy(self.vocabulary.encode(other.vocabulary.symbols).astype(np.int64)).to(self.device)
        theirs = {name: tensor.to(self.head.weight) for name, tensor in other.state_dict().items()}
        old, new = len(other.vocabulary), len(self.vocabulary)
        reads = self.layer.num_layers if self.layer.input_skip else 1  # so many layers read the symbols
        wide = {f"layer.{kind}_l{j}" for kind in ("weight_ih", "weight_ig") for j in range(reads)}
        for name, own in self.state_dict().items():
            if name in wide:
                own[:, places], own[:, new:] = theirs[name][:, :old], theirs[name][:, old:]
            elif name.startswith("head."):
                own[:] = theirs[name].mean(0)
                own[places] = theirs[name]
            else:
                own.copy_(theirs[name])

    def forward(self, ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Symbol numbers (T, B) -> logits of the next symbol (T, B, V), and the state to go on from."""
        features, state = self.layer(ids, state)
        return self.head(features), state

    def nats(self, ids: Tensor, targets: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Cost in nats of each target (T, B), and the state to go on from."""
        features, state = self.layer(ids, state)
        return self.head.nats(features, targets), state

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

        On a CPU it is computed in float64 too, so that a byte costs the same on every machine and on the explorer's
        page; `tasks.text.score` is the fast way through a long text.

        A byte the model does not know is refused, or, with unknown="replace", read as '?'; a warning says how many.
        """
        replaced = self.vocabulary.count_unknown(np.frombuffer(data, dtype=np.uint8)) if unknown == "replace" else 0
        if replaced:
            warnings.warn(f"{replaced:,} bytes outside the vocabulary are read as '?'", stacklevel=3)
        ids = torch.from_numpy(self.vocabulary.encode(data, unknown=unknown).astype(np.int64)).to(self.device)
        if len(ids) == 0:
            return np.zeros(0)
        model = copy.deepcopy(self).double() if self.device.type == "cpu" else self
        parts, state = [model.first_nats()[ids[:1]]], None
        with evaluating(model):
            for start in range(0, len(ids) - 1, SCORE_CHUNK):
                window = ids[start : start + SCORE_CHUNK + 1, None]
                nats, state = model.nats(window[:-1], window[1:], state)
                parts.append(nats.flatten())
        return torch.cat(parts).cpu().double().numpy() / math.log(2)

    def as_half(self) -> "CharLM":
        """A copy whose matrices read as their 16-bit copies do: the model that `generate(half=True)` draws from."""
        twin = copy.deepcopy(self)
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.copy_(half_rounded(parameter))
        return twin

    @overload
    def generate(
        self,
        prompt: bytes | str,
        max_new: int,
        temperature: float = ...,
        top_k: int | None = ...,
        top_p: float | None = ...,
        seed: int | None = ...,
        *,
        samples: None = ...,
        half: bool = ...,
    ) -> bytes: ...

    @overload
    def generate(
        self,
        prompt: bytes | str,
        max_new: int,
        temperature: float = ...,
        top_k: int | None = ...,
        top_p: float | None = ...,
        seed: int | None = ...,
        *,
        samples: int,
        half: bool = ...,
    ) -> list[bytes]: ...

    def generate(
        self,
        prompt: bytes | str,
        max_new: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        *,
        samples: int | None = None,
        half: bool = False,
    ) -> bytes | list[bytes]:
        """The `max_new` bytes that follow `prompt` (which is not repeated); generation.py says how they are drawn.

        With `samples` a list of so many texts, drawn in one pass over the weights; the first of them is the one there
        would be without. `half` reads weights stored in 16 bits: faster, and not quite the same model.
        """
        from gfrnn.models.generation import Sampling, stream

        sampling = Sampling(temperature, top_k, top_p, seed)
        drawn = list(stream(self, prompt, max_new, sampling, 1 if samples is None else samples, half=half))
        texts = [b"".join(column) for column in zip(*drawn, strict=True)] or [b""] * (samples or 1)
        return texts[0] if samples is None else texts
